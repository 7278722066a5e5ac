#include "compiler/lower/lower.h"

#include <string.h>

static const uint8_t opcode_of[ACTION_KINDS] = {
    [ACTION_F] = OP_FORWARD,
    [ACTION_B] = OP_BACKWARD,
    [ACTION_I] = OP_BACKWARD_INPUT,
    [ACTION_W] = OP_BACKWARD_WEIGHT,
    [ACTION_U] = OP_RENEW,
    [ACTION_SEND_F] = OP_SEND_FORWARD,
    [ACTION_RECV_F] = OP_RECEIVE_FORWARD,
    [ACTION_SEND_B] = OP_SEND_BACKWARD,
    [ACTION_RECV_B] = OP_RECEIVE_BACKWARD,
};

static Instruction lower_step(const PlannedStep *step, const Action *action, uint32_t line)
{
    Instruction instruction = instruction_blank(step->waits ? OP_WAIT : opcode_of[action->kind], line);
    memcpy(instruction.slot, step->slots.slot, sizeof instruction.slot);
    if (!step->waits) {
        instruction.chunk = action->chunk;
        instruction.microbatch = action->microbatch;
        instruction.peer = action_is_message(action) ? action->peer : 0;
    }
    return instruction;
}

/* The copies of each stage that has several. */
static void lower_groups(const Schedule *schedule, Arena *arena, Program *program)
{
    const uint32_t stages = program->stages;
    uint32_t *counts = arena_array(arena, stages, sizeof *counts), *group = arena_array(arena, stages, sizeof *group);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
            counts[schedule->chunks[r][c].stage]++;
    for (uint32_t s = 0; s < stages; s++) {
        group[s] = program->group_count;
        program->group_count += counts[s] > 1;
    }
    program->groups = arena_array(arena, program->group_count, sizeof *program->groups);
    for (uint32_t s = 0; s < stages; s++)
        if (counts[s] > 1)
            program->groups[group[s]] =
                (Group){.stage = (uint16_t)s, .members = arena_array(arena, counts[s], sizeof(GroupMember))};
    for (uint32_t p = 0; program->group_count && p < schedule->pipe_count; p++)
        for (uint32_t r = 0; r < schedule->ranks; r++)
            for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
                const PlacedChunk *chunk = &schedule->chunks[r][c];
                if (chunk->pipe != p || counts[chunk->stage] < 2)
                    continue;
                Group *of = &program->groups[group[chunk->stage]];
                of->members[of->member_count++] = (GroupMember){(uint16_t)r, (uint8_t)c};
            }
}

/* The copies of the chunk's stage sum their gradients. */
static Instruction lower_reduce(const Program *program, const RankProgram *rank, uint32_t chunk, uint32_t line)
{
    Instruction reduce = instruction_blank(OP_REDUCE, line);
    reduce.chunk = (uint8_t)chunk;
    while (program->groups[reduce.peer].stage != rank->chunks[chunk].stage)
        reduce.peer++;
    return reduce;
}

/* The one update at the end of a synchronous step. */
static Instruction *lower_updates(const Schedule *schedule, const Program *program, const RankProgram *rank,
                                  const Source *source, uint32_t line, Instruction *next)
{
    for (uint32_t g = 0; g < program->group_count; g++)
        for (uint32_t c = 0; c < rank->chunk_count; c++)
            if (rank->chunks[c].stage == program->groups[g].stage)
                *next++ = lower_reduce(program, rank, c,
                                       source_line(source, schedule->pipes[rank->chunks[c].pipe].span.begin));
    *next++ = instruction_blank(OP_NORM, line);
    for (uint32_t c = 0; c < rank->chunk_count; c++) {
        *next = instruction_blank(OP_UPDATE, line);
        next++->chunk = (uint8_t)c;
    }
    return next;
}

static void lower_rank(const Schedule *schedule, uint32_t rank, const RankPlan *plan, const Source *source,
                       Arena *arena, const Program *program, RankProgram *lowered)
{
    const uint32_t chunks = schedule->chunk_counts[rank];
    const Order *order = &schedule->orders[rank];
    uint32_t count = plan->count + 2 * chunks + 2; /* at most */
    for (uint32_t i = 0; i < order->count; i++)
        count += order->actions[i].overlap || order->actions[i].kind == ACTION_U;
    lowered->chunk_count = chunks;
    lowered->chunks = arena_array(arena, chunks, sizeof *lowered->chunks);
    for (uint32_t c = 0; c < chunks; c++)
        lowered->chunks[c] = (Chunk){schedule->chunks[rank][c].pipe, schedule->chunks[rank][c].stage};
    memcpy(lowered->slots, plan->slots, sizeof lowered->slots);
    lowered->peak_activations = plan->peak_activations;
    lowered->instructions = arena_array(arena, count, sizeof *lowered->instructions);

    Instruction *next = lowered->instructions;
    uint32_t line = 1, line_of = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const PlannedStep *step = &plan->steps[i];
        const Action *action = &order->actions[step->action];
        if (action->span.begin != line_of || i == 0)
            line = source_line(source, line_of = action->span.begin);
        if (action->overlap && !step->waits)
            *next++ = instruction_blank(OP_OVERLAP, line);
        if (action->kind == ACTION_U && !step->waits && schedule->copies[action->stage].count > 1)
            *next++ = lower_reduce(program, lowered, action->chunk, line);
        *next = lower_step(step, action, line);
        if (next->opcode == OP_RENEW)
            next->microbatch = schedule->copies[action->stage].gradients[action->microbatch - 1];
        next++;
    }
    if (!schedule->asynchronous)
        next = lower_updates(schedule, program, lowered, source, line, next);
    *next++ = instruction_blank(OP_END, line);
    lowered->instruction_count = (uint32_t)(next - lowered->instructions);
}

Program *lower(const Schedule *schedule, const RankPlan *plans, const Source *source, Arena *arena)
{
    Program *program = arena_allocate(arena, sizeof *program);
    const char *slash = strrchr(source->path, '/');
    const char *file = slash ? slash + 1 : source->path;
    program->schedule = arena_text(arena, schedule->name, strlen(schedule->name));
    program->source = arena_text(arena, file, strlen(file));
    program->stages = schedule->pipes[0].stages;
    program->microbatches = schedule->microbatches;
    program->asynchronous = schedule->asynchronous;
    program->pipe_count = schedule->pipe_count;
    program->pipes = arena_array(arena, schedule->pipe_count, sizeof *program->pipes);
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        program->pipes[p] = (Pipe){.microbatches = schedule->pipes[p].microbatches,
                                   .first = schedule->pipes[p].first,
                                   .versions = schedule->pipes[p].versions};
    program->recipe = schedule->recipe;
    lower_groups(schedule, arena, program);
    program->rank_count = schedule->ranks;
    program->ranks = arena_array(arena, schedule->ranks, sizeof *program->ranks);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        lower_rank(schedule, r, &plans[r], source, arena, program, &program->ranks[r]);
    return program;
}
