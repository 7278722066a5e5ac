/* Runs one rank: dps_rank_open, dps_next, dps_done. */

#include "library/internal.h"

#include "base/counted.h"

#include <stdio.h>
#include <string.h>

const char *dps_rank_error(const dps_rank *rank) { return rank ? rank->error.text : "the rank is NULL"; }

/* --- opening --- */

/* Replaces the rank's instructions by a copy that posts messages early. */
static void post_early(dps_rank *rank, const Program *program)
{
    const size_t bytes = rank->own.instruction_count * sizeof *rank->own.instructions;
    rank->own.instructions = memcpy(arena_allocate(&rank->arena, bytes), rank->own.instructions, bytes);
    rank_post_early(&rank->own, program->rank_count, &rank->arena);
}

static void make_actions(dps_rank *rank, const Program *program)
{
    const RankProgram *own = &rank->own;
    rank->actions = arena_array(&rank->arena, own->instruction_count, sizeof *rank->actions);
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        dps_instruction *const action = &rank->actions[i];
        *action = instruction_half(program, rank->walk.rank, &own->instructions[i], 0);
        action->index = (int32_t)(own->numbers ? own->numbers[i] : i);
        if (action->group >= 0 || (action->opcode != DPS_REDUCE && action->opcode != DPS_WAIT_REDUCE))
            rank->opcodes |= 1u << action->opcode;
        if (action->halves == 2) {
            dps_instruction *const second = arena_allocate(&rank->arena, sizeof *second);
            *second = instruction_half(program, rank->walk.rank, &own->instructions[i], 1);
            second->index = action->index;
            action->second = second;
            rank->opcodes_in_pairs |= 1u << DPS_FORWARD | 1u << second->opcode;
        }
    }
}

typedef struct Opening {
    const dps_program *program;
    uint32_t rank;
    const dps_rank_options *options;
    dps_rank **opened;
} Opening;

static Status check_ranks(const Program *program, uint32_t rank, uint32_t ranks, Error *error)
{
    if (ranks && ranks != program->rank_count)
        return error_set(error, STATUS_BAD_USAGE, "%s was compiled for %s, but you run %u: compile it for %u",
                         program->schedule, counted(program->rank_count, "rank").text, ranks, ranks);
    if (rank < program->rank_count)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_USAGE, "%s has ranks 0 to %u: there is no rank %u", program->schedule,
                     program->rank_count - 1, rank);
}

static Status open_body(dps *d, void *arguments)
{
    const Opening *opening = arguments;
    const Program *program = opening->program->compilation.program;
    dps_rank_options options = {0};
    if (opening->options && !STRUCT_IN(&options, opening->options))
        return error_set(&d->error, STATUS_BAD_USAGE, STRUCT_REFUSED, "dps_rank_options");
    TRY(check_ranks(program, opening->rank, options.ranks, &d->error));
    dps_rank *const rank = d->rank = host_new(d, sizeof *rank);
    rank->memory = d->memory;
    rank->arena = host_arena(d, &rank->memory);
    rank->own = program->ranks[opening->rank];
    rank->walk = (Walk){.program = program, .rank = opening->rank, .progress = &rank->progress};
    rank->walk.name = mesh_name((Mesh){(int)program->rank_count, 1}, (int)opening->rank);
    if (options.post_early)
        post_early(rank, program);
    make_actions(rank, program);
    rank->arena.exhausted = NULL;
    d->rank = NULL;
    *opening->opened = rank;
    return STATUS_OK;
}

dps_status dps_rank_open(dps *d, const dps_program *program, uint32_t rank, const dps_rank_options *options,
                         dps_rank **opened)
{
    Opening request = {program, rank, options, opened};
    return CALL(d, open_body, &request, NEEDED(program), RESULT(opened));
}

void dps_rank_free(dps_rank *rank)
{
    if (!rank)
        return;
    const MemoryFunctions memory = rank->memory;
    threads_leave(rank);
    arena_free(&rank->arena);
    host_release(&memory, rank);
}

/* --- a step, driven by the host (dps_next) or by the library (step.c) --- */

dps_status rank_refuse(dps_rank *rank, const char *text)
{
    return (dps_status)error_set(&rank->error, STATUS_BAD_USAGE, "rank %u: %s", rank->walk.rank, text);
}

void dps_reason(dps_rank *rank, const char *text)
{
    if (rank)
        snprintf(rank->reason, sizeof rank->reason, "%s", text ? text : "");
}

dps_status rank_fail(dps_rank *rank, dps_status status)
{
    rank->state = RANK_FAILED;
    rank->failure = status;
    walk_failed(&rank->walk, rank->walk.place, STATUS_RUN_FAILED, &rank->error);
    threads_abort(rank);
    return status;
}

Status rank_host_failed(dps_rank *rank)
{
    return error_set(&rank->error, STATUS_RUN_FAILED, "%s",
                     *rank->reason ? rank->reason
                                   : "the host reported a failure and gave no reason (dps_reason gives one)");
}

void rank_begin(dps_rank *rank)
{
    if (rank->state == RANK_BETWEEN_STEPS)
        walk_begin(&rank->walk, rank->walk.program, &rank->own, rank->walk.step + 1);
    rank->state = RANK_IN_STEP;
}

/* Runs the rank's next instructions as long as the library runs them itself (rank_carries). */
static Status run_exchanges(dps_rank *rank)
{
    for (;;) {
        const Instruction *next = walk_next(&rank->walk);
        if (!rank_carries(rank, next->opcode))
            return STATUS_OK;
        TRY(exchange_run(&rank->exchange, next, &rank->error));
        walk_done(&rank->walk);
    }
}

dps_status dps_next(dps_rank *rank, const dps_instruction **action)
{
    if (action)
        *action = NULL;
    if (!rank)
        return DPS_BAD_USAGE;
    if (rank->state == RANK_FAILED)
        return rank->failure;
    if (!action)
        return rank_refuse(rank, "dps_next: `action` is NULL");
    if (rank->state == RANK_BUSY)
        return rank_refuse(rank, "dps_next: the action before this one is not done: call dps_done first");
    if (rank->state == RANK_PUSHES)
        return rank_refuse(rank, "dps_next: called while dps_step runs this rank");
    rank_begin(rank);
    const Status status = run_exchanges(rank);
    if (status != STATUS_OK)
        return rank_fail(rank, (dps_status)status);
    *action = &rank->actions[rank->walk.place];
    rank->state = RANK_BUSY;
    if ((*action)->opcode == DPS_END) {
        walk_done(&rank->walk);
        rank->state = RANK_BETWEEN_STEPS;
    }
    return DPS_OK;
}

dps_status dps_done(dps_rank *rank, const dps_instruction *action, dps_status status)
{
    if (!rank)
        return DPS_BAD_USAGE;
    if (rank->state == RANK_FAILED)
        return rank->failure;
    if (rank->state != RANK_BUSY || action != &rank->actions[rank->walk.place])
        return rank_refuse(rank, "dps_done: this is not the action that dps_next returned last, or it is done already");
    if (status != DPS_OK) {
        rank_host_failed(rank);
        return rank_fail(rank, status);
    }
    walk_done(&rank->walk);
    rank->state = RANK_IN_STEP;
    return DPS_OK;
}
