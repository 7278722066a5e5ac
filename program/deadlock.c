#include "program/deadlock.h"

#include "program/verify.h"

#include <stdarg.h>
#include <string.h>

/* --- the shortest cycle --- */

/* Follows the waits breadth first from rank `start`, until a wait leads back to it. reached[r] is the wait that led to
   rank r, so reached[r].on is r. False: no wait leads back. */
static bool returns_to(uint32_t start, WaitList *const *lists, uint32_t ranks, Wait *reached, uint32_t *queue)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < ranks; r++)
        reached[r].on = ranks;
    queue[count++] = start;
    for (uint32_t i = 0; i < count; i++) {
        WaitList *list = lists[queue[i]];
        if (list->followed == start + 1)
            continue;
        list->followed = start + 1;
        for (uint32_t w = 0; w < list->count; w++) {
            const uint32_t on = list->waits[w].on;
            if (!lists[on] || reached[on].on == on)
                continue;
            reached[on] = list->waits[w];
            reached[on].rank = queue[i];
            if (on == start)
                return true;
            queue[count++] = on;
        }
    }
    return false;
}

bool deadlock_cycle(WaitList *const *lists, uint32_t ranks, Arena *arena, Deadlock *deadlock)
{
    Wait *reached = arena_array(arena, ranks, sizeof *reached);
    uint32_t *queue = arena_array(arena, ranks, sizeof *queue);
    *deadlock = (Deadlock){.waits = arena_array(arena, ranks, sizeof *deadlock->waits)};
    if (!reached || !queue || !deadlock->waits)
        return false;
    for (uint32_t start = 0; start < ranks; start++) {
        if (!lists[start] || !returns_to(start, lists, ranks, reached, queue))
            continue;
        uint32_t length = 1;
        for (uint32_t r = reached[start].rank; r != start; r = reached[r].rank)
            length++;
        if (deadlock->cycle && length >= deadlock->cycle)
            continue;
        deadlock->cycle = length;
        for (uint32_t r = start; length-- > 0; r = reached[r].rank)
            deadlock->waits[length] = reached[r];
    }
    return true;
}

/* --- of a program --- */

/* The group of copies whose gradients a REDUCE sums; GROUP_NONE for a REDUCE of a stage with one copy and for other
   instructions. */
static uint32_t group_of(const RankState *state, const Instruction *instruction)
{
    const bool sums = instruction->opcode == OP_REDUCE && instruction->chunk < state->program->chunk_count;
    return sums ? state->chunks[instruction->chunk].group : GROUP_NONE;
}

/* Lists the ranks that have not arrived at the REDUCE or NORM where `rank` waits. False: out of memory. */
static bool list_absent(Verifier *verifier, const Instruction *instruction, uint32_t rank, WaitList *list)
{
    const RankState *state = &verifier->ranks[rank];
    const uint32_t number = group_of(state, instruction);
    const Group *group = number == GROUP_NONE ? NULL : &verifier->program->groups[number];
    const uint32_t members = group ? group->member_count : verifier->program->rank_count;
    list->waits = arena_array(&verifier->arena, members, sizeof *list->waits);
    for (uint32_t m = 0; list->waits && m < members; m++) {
        const RankState *other = &verifier->ranks[group ? group->members[m].rank : m];
        if (group ? other->chunks[group->members[m].chunk].reductions < state->chunks[instruction->chunk].reductions
                  : !other->normed)
            list->waits[list->count++].on = (uint32_t)(other - verifier->ranks);
    }
    return list->waits;
}

/* [ranks]: what each rank waits for; an element is NULL if the rank has ended. NULL: out of memory. All ranks at the
   same collective share a list. */
static WaitList **list_waits(Verifier *verifier)
{
    const Program *program = verifier->program;
    WaitList **lists = arena_array(&verifier->arena, program->rank_count, sizeof *lists);
    WaitList *collectives = arena_array(&verifier->arena, program->group_count + 1u, sizeof *collectives);
    WaitList *messages = arena_array(&verifier->arena, program->rank_count, sizeof *messages);
    Wait *ends = arena_array(&verifier->arena, program->rank_count, sizeof *ends);
    if (!lists || !collectives || !messages || !ends)
        return NULL;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankState *state = &verifier->ranks[r];
        const Instruction *instruction = &state->program->instructions[state->next];
        if (state->ended)
            continue;
        if (verifier_message(instruction)) {
            ends[r].on = instruction->peer;
            messages[r] = (WaitList){.waits = &ends[r], .count = 1};
            lists[r] = &messages[r];
            continue;
        }
        const uint32_t group = group_of(state, instruction);
        lists[r] = &collectives[group == GROUP_NONE ? program->group_count : group];
        if (!lists[r]->waits && !list_absent(verifier, instruction, r, lists[r]))
            return NULL;
    }
    return lists;
}

/* The index of the instruction that rank wait->on must reach: the other end of the message at which wait->rank waits,
   or the same collective. Looks only at instructions that rank wait->on has not run yet. POSITION_NOWHERE: none. */
static uint32_t find_awaited(const Verifier *verifier, const Wait *wait)
{
    const RankState *state = &verifier->ranks[wait->rank], *other = &verifier->ranks[wait->on];
    const Instruction *mine = &state->program->instructions[wait->at];
    const Operand *message = verifier_message(mine);
    for (uint32_t i = other->next; i < other->program->instruction_count; i++) {
        const Instruction *theirs = &other->program->instructions[i];
        if (!message && theirs->opcode == mine->opcode && group_of(other, theirs) == group_of(state, mine))
            return i;
        if (!message || !opcode_is_post(theirs->opcode) || theirs->chunk >= other->program->chunk_count)
            continue;
        const Operand *end = verifier_message(theirs);
        if (end->kind != message->kind && theirs->peer == wait->rank &&
            verifier_label(&other->chunks[theirs->chunk], theirs, end) == state->labels[message->slot])
            return i;
    }
    return POSITION_NOWHERE;
}

static bool find_deadlock(Verifier *verifier, Arena *arena, Deadlock *deadlock)
{
    const uint32_t ranks = verifier->program->rank_count;
    WaitList **lists = list_waits(verifier);
    if (!lists || !deadlock_cycle(lists, ranks, arena, deadlock))
        return false;
    for (uint32_t i = 0; i < deadlock->cycle; i++) {
        Wait *wait = &deadlock->waits[i];
        wait->at = verifier->ranks[wait->rank].next;
        wait->until = find_awaited(verifier, wait);
        lists[wait->rank] = NULL;
    }
    deadlock->count = deadlock->cycle;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t w = 0; lists[r] && w < lists[r]->count; w++) {
            const uint32_t on = lists[r]->waits[w].on;
            if (!deadlock->cycle && !verifier->ranks[on].ended)
                continue;
            deadlock->waits[deadlock->count++] = (Wait){r, verifier->ranks[r].next, on, POSITION_NOWHERE};
            break;
        }
    return true;
}

/* --- in words --- */

enum { TEXT_SIZE = 400, SHOWN_MAX = 4 };

static void append(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(Error *error, const char *format, ...)
{
    const size_t used = strlen(error->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text + used, sizeof error->text - used, format, arguments);
    va_end(arguments);
}

static void append_wait(const Program *program, const Wait *wait, const char *before, Error *error)
{
    char place[TEXT_SIZE];
    verifier_place_text(program, wait->rank, wait->at, place, sizeof place);
    append(error, "%s%s waits for rank %u", before, place, wait->on);
}

static void describe(const Program *program, const Deadlock *deadlock, Error *error)
{
    const Wait *waits = deadlock->waits;
    const uint32_t cycle = deadlock->cycle, others = deadlock->count - cycle;
    const uint32_t shown = cycle <= SHOWN_MAX ? cycle : SHOWN_MAX - 1;
    error_set(error, STATUS_BAD_INPUT, "deadlock: ");
    if (!cycle) {
        append_wait(program, waits, "", error);
        append(error, ", which has ended");
        return;
    }
    append(error, "%u ranks wait for each other", cycle);
    for (uint32_t i = 0; i < shown; i++)
        append_wait(program, &waits[i], "\n  ", error);
    if (shown < cycle)
        append(error, "\n  ... and so on over %u more, back to rank %u", cycle - shown, waits[0].rank);
    for (uint32_t i = 0; i < others && i < SHOWN_MAX; i++)
        append_wait(program, &waits[cycle + i], "\n  besides, ", error);
    if (others > SHOWN_MAX)
        append(error, "\n  besides, %u more", others - SHOWN_MAX);
}

Status verifier_explain_deadlock(Verifier *verifier, Arena *arena, Deadlock *deadlock)
{
    if (!find_deadlock(verifier, arena, deadlock))
        return error_set(verifier->error, STATUS_NO_MEMORY, "no memory to explain the deadlock");
    describe(verifier->program, deadlock, verifier->error);
    return STATUS_BAD_INPUT;
}
