#include "runtime/program/verify.h"

#include <string.h>

/* Says why nobody can go on: the shortest circle of waits, or a rank that waits for one that has ended. */

enum { TEXT_SIZE = 400, CIRCLE_MAX = 4, OTHERS_MAX = 4, NOBODY = UINT32_MAX };

typedef struct Search {
    const Verifier *verifier;
    uint32_t *came_from, *distance, *queue; /* [ranks]; distance 0: not reached */
    uint32_t queued;
    bool norm_seen; /* all who are at NORM wait for the same ranks: the first reached speaks for the others */
} Search;

/* The ranks that `rank` waits for, one a call, NOBODY after the last; *position begins as 0. */
static uint32_t next_awaited(const Verifier *verifier, uint32_t rank, uint32_t *position)
{
    const RankState *state = &verifier->ranks[rank];
    const Instruction *instruction = &state->program->instructions[state->next];
    if (verifier_message(instruction))
        return (*position)++ ? NOBODY : instruction->peer;
    if (instruction->opcode == OP_NORM) {
        while (*position < verifier->program->rank_count) {
            const uint32_t other = (*position)++;
            if (!verifier->ranks[other].normed)
                return other;
        }
        return NOBODY;
    }
    const Group *group = &verifier->program->groups[instruction->peer];
    while (*position < group->member_count) {
        const GroupMember *member = &group->members[(*position)++];
        if (verifier->ranks[member->rank].chunks[member->chunk].reductions <
            state->chunks[instruction->chunk].reductions)
            return member->rank;
    }
    return NOBODY;
}

static void reach(Search *search, uint32_t rank, uint32_t from, uint32_t distance)
{
    if (search->distance[rank] || search->verifier->ranks[rank].ended)
        return;
    search->distance[rank] = distance;
    search->came_from[rank] = from;
    search->queue[search->queued++] = rank;
}

/* Breadth first along the waits: the length of the shortest circle through `start`, NOBODY when none is below
   `limit`. */
static uint32_t circle_through(Search *search, uint32_t start, uint32_t limit)
{
    const Verifier *verifier = search->verifier;
    memset(search->distance, 0, verifier->program->rank_count * sizeof *search->distance);
    search->queued = 0;
    search->norm_seen = false;
    uint32_t rank = start, distance = 0;
    for (uint32_t taken = 0;; taken++) {
        const RankState *state = &verifier->ranks[rank];
        const bool norm = state->program->instructions[state->next].opcode == OP_NORM;
        if (!norm || !search->norm_seen)
            for (uint32_t position = 0, to; (to = next_awaited(verifier, rank, &position)) != NOBODY;)
                reach(search, to, rank, distance + 1);
        search->norm_seen |= norm;
        if (search->distance[start])
            return search->distance[start];
        if (taken == search->queued)
            return NOBODY;
        rank = search->queue[taken];
        distance = search->distance[rank];
        if (distance + 1 >= limit)
            return NOBODY;
    }
}

static void append(Error *error, const char *text)
{
    const size_t used = strlen(error->text);
    snprintf(error->text + used, sizeof error->text - used, "%s", text);
}

static void append_wait(const Verifier *verifier, uint32_t rank, const char *before, uint32_t awaited,
                        const char *after)
{
    char place[TEXT_SIZE], line[TEXT_SIZE + 100];
    verifier_place_text(verifier, rank, verifier->ranks[rank].next, place, sizeof place);
    snprintf(line, sizeof line, "%s%s waits for rank %u%s", before, place, awaited, after);
    append(verifier->error, line);
}

static void explain(Search *search, uint32_t best_start, uint32_t best)
{
    const Verifier *verifier = search->verifier;
    const uint32_t ranks = verifier->program->rank_count;
    circle_through(search, best_start, best + 1);
    /* came_from leads backwards; turned round in `queue`, it is the order of the waits. */
    uint32_t rank = best_start;
    for (uint32_t i = best; i-- > 0; rank = search->came_from[rank])
        search->queue[i] = search->came_from[rank];
    char text[TEXT_SIZE];
    snprintf(text, sizeof text, "deadlock: %u ranks wait for each other in a circle", best);
    error_set(verifier->error, STATUS_BAD_INPUT, "%s", text);
    const uint32_t shown = best <= CIRCLE_MAX ? best : CIRCLE_MAX - 1;
    for (uint32_t i = 0; i < shown; i++)
        append_wait(verifier, search->queue[i], "\n  ", search->queue[(i + 1) % best], "");
    if (shown < best) {
        snprintf(text, sizeof text, "\n  ... and so on over %u more, back to rank %u", best - shown, search->queue[0]);
        append(verifier->error, text);
    }
    memset(search->distance, 0, ranks * sizeof *search->distance);
    for (uint32_t i = 0; i < best; i++)
        search->distance[search->queue[i]] = 1;
    uint32_t others = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        if (verifier->ranks[r].ended || search->distance[r])
            continue;
        uint32_t position = 0;
        if (others++ < OTHERS_MAX)
            append_wait(verifier, r, "\n  besides, ", next_awaited(verifier, r, &position), "");
    }
    if (others > OTHERS_MAX) {
        snprintf(text, sizeof text, "\n  besides, %u more", others - OTHERS_MAX);
        append(verifier->error, text);
    }
}

Status verifier_explain_deadlock(Verifier *verifier)
{
    const uint32_t ranks = verifier->program->rank_count;
    Search search = {.verifier = verifier,
                     .came_from = arena_array(&verifier->arena, ranks, sizeof *search.came_from),
                     .distance = arena_array(&verifier->arena, ranks, sizeof *search.distance),
                     .queue = arena_array(&verifier->arena, ranks, sizeof *search.queue)};
    if (!search.came_from || !search.distance || !search.queue)
        return error_set(verifier->error, STATUS_RUN_FAILED, "no memory to explain the deadlock");
    uint32_t best = NOBODY, best_start = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        const uint32_t length = verifier->ranks[r].ended ? NOBODY : circle_through(&search, r, best);
        if (length < best) {
            best = length;
            best_start = r;
        }
    }
    if (best != NOBODY) {
        explain(&search, best_start, best);
        if (verifier_runs_buffered(verifier->program))
            append(verifier->error,
                   "\n  it runs where one message is buffered on each link; no transport has to buffer one");
        return STATUS_BAD_INPUT;
    }
    /* Every wait leads on or to a rank that has ended; without a circle some must lead there. */
    error_set(verifier->error, STATUS_BAD_INPUT, "deadlock: ");
    for (uint32_t r = 0; r < ranks; r++) {
        if (verifier->ranks[r].ended)
            continue;
        for (uint32_t position = 0, to; (to = next_awaited(verifier, r, &position)) != NOBODY;) {
            if (verifier->ranks[to].ended) {
                append_wait(verifier, r, "", to, ", which has ended");
                return STATUS_BAD_INPUT;
            }
        }
    }
    return STATUS_BAD_INPUT;
}
