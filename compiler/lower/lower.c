#include "compiler/lower/lower.h"

#include "compiler/lower/sums.h"
#include "program/slots.h"

#include <string.h>

static const uint8_t opcode_of[ACTION_KINDS] = {
    [ACTION_F] = OP_FORWARD,
    [ACTION_B] = OP_BACKWARD,
    [ACTION_I] = OP_BACKWARD_INPUT,
    [ACTION_W] = OP_BACKWARD_WEIGHT,
    [ACTION_U] = OP_ASYNC_UPDATE,
    [ACTION_SEND_F] = OP_SEND_FORWARD,
    [ACTION_RECV_F] = OP_RECEIVE_FORWARD,
    [ACTION_SEND_B] = OP_SEND_BACKWARD,
    [ACTION_RECV_B] = OP_RECEIVE_BACKWARD,
};

/* Whether the step ends with the sums of gradients and an update of all weights: a synchronous step that trains. */
static bool sums_at_end(const Schedule *schedule) { return !schedule->asynchronous && !schedule->forward_only; }

static Instruction lower_action(const Schedule *schedule, const Action *action, uint32_t line)
{
    const bool keeps_nothing = schedule->forward_only && action->kind == ACTION_F;
    Instruction instruction = instruction_blank(keeps_nothing ? OP_FORWARD_ONLY : opcode_of[action->kind], line);
    instruction.chunk = action->chunk;
    /* copies put_off of a pass, too: it shares its memory with peer */
    instruction.peer = action->peer;
    instruction.microbatch = action->kind == ACTION_U
                                 ? schedule->copies[action->stage].gradients[action->microbatch - 1]
                                 : action->microbatch;
    return instruction;
}

/* Writes a group for each stage that has several copies: a list of the rank and chunk of each copy. */
static void lower_groups(const Schedule *schedule, Arena *arena, Program *program)
{
    program->groups = arena_array(arena, program->stages, sizeof *program->groups);
    for (uint32_t s = 0; s < program->stages; s++)
        if (schedule->copies[s].count > 1)
            program->groups[program->group_count++] =
                (Group){(uint16_t)s, (uint16_t)schedule->copies[s].count, schedule->copies[s].homes};
}

static Instruction *put_of_chunk(Instruction *next, Opcode opcode, uint32_t chunk, uint32_t line)
{
    *next = instruction_blank(opcode, line);
    next->chunk = (uint8_t)chunk;
    return next + 1;
}

/* The sums of gradients that a rank posts. `next`: index in `posts` of the first sum for which no REDUCE has been
   written yet. */
typedef struct RankSums {
    const Schedule *schedule;
    const Source *source;
    uint32_t rank, count, next;
    const SumPost *posts; /* [count] */
} RankSums;

static Instruction *lower_sums(const RankSums *sums, Opcode opcode, uint32_t begin, uint32_t end, Instruction *next)
{
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t chunk = sums->posts[i].chunk;
        const PlacedPipe *pipe = &sums->schedule->pipes[sums->schedule->chunks[sums->rank][chunk].pipe];
        next = put_of_chunk(next, opcode, chunk, source_line(sums->source, pipe->span.begin));
    }
    return next;
}

/* Writes the REDUCE instructions of the sums that are posted before the action at `position`, unless they were
   written before. */
static Instruction *lower_posts(RankSums *sums, uint32_t position, Instruction *next)
{
    const uint32_t begin = sums->next;
    while (sums->next < sums->count && sums->posts[sums->next].position <= position)
        sums->next++;
    return lower_sums(sums, OP_REDUCE, begin, sums->next, next);
}

/* Writes the end of a synchronous step: a WAIT_REDUCE for each sum, the norm of the gradients, and an update for each
   chunk. */
static Instruction *lower_updates(const RankSums *sums, uint32_t line, Instruction *next)
{
    next = lower_sums(sums, OP_WAIT_REDUCE, 0, sums->count, next);
    *next++ = instruction_blank(OP_NORM, line);
    for (uint32_t c = 0; c < sums->count; c++)
        next = put_of_chunk(next, OP_UPDATE, c, line);
    return next;
}

/* Writes the instructions of a rank, without slots and WAITs, from `instructions` upwards. The second halves of F&Bs
   and F&Fs are written from `end` downwards. Returns the number of instructions, not counting these halves. */
static uint32_t lower_order(const Schedule *schedule, uint32_t r, const Source *source, const SumPost *posts,
                            Instruction *instructions, Instruction *end)
{
    const Order *order = &schedule->orders[r];
    RankSums sums = {.schedule = schedule, .source = source, .rank = r, .posts = posts};
    Instruction *next = instructions;
    uint32_t line = 1, line_of = 0;
    sums.count = sums_at_end(schedule) ? schedule->chunk_counts[r] : 0;
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        next = lower_posts(&sums, i, next);
        if (action->span.begin != line_of || i == 0)
            line = source_line(source, line_of = action->span.begin);
        if (action->kind == ACTION_U) {
            next = put_of_chunk(next, OP_REDUCE, action->chunk, line);
            next = put_of_chunk(next, OP_WAIT_REDUCE, action->chunk, line);
        }
        *next = lower_action(schedule, action, line);
        if (action->overlap) {
            const Action *second = &order->actions[++i];
            next->opcode = schedule->forward_only ? OP_OVERLAP_FORWARD : OP_OVERLAP;
            next->second = --end;
            *next->second = lower_action(schedule, second, source_line(source, line_of = second->span.begin));
            line = next->second->line;
        }
        next++;
    }
    next = lower_posts(&sums, order->count, next);
    if (sums_at_end(schedule))
        next = lower_updates(&sums, line, next);
    *next++ = instruction_blank(OP_END, line);
    return (uint32_t)(next - instructions);
}

static bool lower_rank(const Schedule *schedule, uint32_t r, const Source *source, const SumPost *posts, Arena *arena,
                       Diagnostics *diagnostics, const Program *program)
{
    RankProgram *rank = &program->ranks[r];
    const Order *order = &schedule->orders[r];
    Arena *const scratch = arena_scratch(arena);
    rank->chunk_count = schedule->chunk_counts[r];
    rank->chunks = arena_array(arena, rank->chunk_count, sizeof *rank->chunks);
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        rank->chunks[c] = (Chunk){schedule->chunks[r][c].pipe, schedule->chunks[r][c].stage};
    /* most instructions for one action: a U becomes REDUCE, WAIT_REDUCE and the update */
    const size_t of_action = schedule->asynchronous ? 3 : 1;
    const size_t most = of_action * order->count + 3 * (size_t)rank->chunk_count + 2;
    Instruction *instructions = arena_array(scratch, most, sizeof *instructions);
    slots_assign(program, rank, instructions,
                 lower_order(schedule, r, source, posts, instructions, instructions + most), arena);
    arena_free(scratch);
    const SlotClass class = slots_exceeded(rank);
    if (class == SLOT_CLASSES)
        return true;
    const Span end = order->count ? order->actions[order->count - 1].span : (Span){0, 0};
    diag_error(diagnostics, end, "rank %u holds %u buffers of one kind at once; at most %d fit into a program", r,
               rank->slots[class], PROGRAM_SLOTS_MAX);
    diag_help(diagnostics, schedule->forward_only
                               ? "use fewer microbatches, or an order in which the next stage runs each earlier"
                               : "use fewer microbatches, or an order that runs backward passes earlier");
    return false;
}

Program *lower(const Schedule *schedule, const Source *source, Arena *arena, Diagnostics *diagnostics)
{
    Program *program = arena_allocate(arena, sizeof *program);
    const char *slash = strrchr(source->path, '/');
    const char *file = slash ? slash + 1 : source->path;
    program->schedule = arena_text(arena, schedule->name, strlen(schedule->name));
    program->source = arena_text(arena, file, strlen(file));
    program->stages = schedule->pipes[0].stages;
    program->microbatches = schedule->microbatches;
    program->asynchronous = schedule->asynchronous;
    program->forward_only = schedule->forward_only;
    program->pipe_count = schedule->pipe_count;
    program->pipes = arena_array(arena, schedule->pipe_count, sizeof *program->pipes);
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        program->pipes[p] = (Pipe){.microbatches = schedule->pipes[p].microbatches,
                                   .first = schedule->pipes[p].first,
                                   .versions = schedule->pipes[p].versions};
    if (recipes_are_forward(&schedule->recipes) == schedule->forward_only)
        program->recipes = schedule->recipes;
    lower_groups(schedule, arena, program);
    program->rank_count = schedule->ranks;
    program->ranks = arena_array(arena, schedule->ranks, sizeof *program->ranks);
    SumPost **posts = sums_at_end(schedule) ? sums_place(schedule, arena) : NULL;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        if (!lower_rank(schedule, r, source, posts ? posts[r] : NULL, arena, diagnostics, program))
            return NULL;
    return program;
}
