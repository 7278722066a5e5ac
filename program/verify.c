#include "program/verify.h"

/* Runs all ranks symbolically: slots hold labels instead of data. A rank runs until it blocks: at a SEND or RECEIVE
   until the other end arrives, at a REDUCE until all copies of the stage arrive, at a NORM until all ranks arrive. The
   last rank to arrive applies the effects for all, and makes the others runnable at their next instruction. So a
   program that is accepted needs no buffered messages. Whether a program is accepted does not depend on the order in
   which ranks run: each message pairs one fixed SEND with one fixed RECEIVE. */

void verifier_resume(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    state->blocked = false;
    state->next++;
    verifier->runnable[verifier->runnable_count++] = rank;
}

static bool is_misplaced(const Program *program, uint8_t opcode)
{
    const bool is_forward_only = opcode == OP_FORWARD_ONLY || opcode == OP_OVERLAP_FORWARD;
    if (program->forward_only)
        return !opcode_is_forward_only(opcode);
    if (program->asynchronous)
        return is_forward_only || opcode == OP_NORM || opcode == OP_UPDATE;
    return is_forward_only || opcode == OP_ASYNC_UPDATE;
}

/* Runs a rank until it arrives at END or at an instruction where it may wait. verifier_resume puts a rank that waited
   back on the stack of runnable ranks. */
static Status run_rank(Verifier *verifier, uint32_t rank)
{
    RankState *state = &verifier->ranks[rank];
    const bool forward_only = verifier->program->forward_only, asynchronous = verifier->program->asynchronous;
    for (;; state->next++) {
        const Instruction *instruction = &state->program->instructions[state->next];
        if (instruction->opcode >= OPCODE_COUNT)
            return verifier_refuse(verifier, rank, "there is no such opcode");
        if (opcode_is_pair(instruction->opcode) != (instruction->second != NULL))
            return verifier_refuse(verifier, rank, "an F&B or F&F must have two halves, and no other instruction may");
        if (is_misplaced(verifier->program, instruction->opcode))
            return verifier_refuse(verifier, rank, "the instruction is not allowed in %s program",
                                   forward_only   ? "a forward-only"
                                   : asynchronous ? "an asynchronous"
                                                  : "a synchronous training");
        TRY(verifier_check_put_off(verifier, rank, instruction));
        TRY(verifier_check_operands(verifier, rank, instruction));
        switch ((Opcode)instruction->opcode) {
        case OP_SEND_FORWARD:
        case OP_RECEIVE_FORWARD:
        case OP_SEND_BACKWARD:
        case OP_RECEIVE_BACKWARD: return verifier_arrive_at_message(verifier, rank, instruction);
        case OP_REDUCE: return verifier_arrive_at_reduce(verifier, rank, instruction);
        case OP_WAIT_REDUCE: TRY(verifier_wait_for_sum(verifier, rank, instruction)); break;
        case OP_NORM: return verifier_arrive_at_norm(verifier, rank);
        case OP_END: return verifier_arrive_at_end(verifier, rank);
        case OP_OVERLAP:
        case OP_OVERLAP_FORWARD: TRY(verifier_run_second(verifier, rank, instruction)); break;
        case OP_ASYNC_UPDATE: verifier_update_async(state, instruction); break;
        case OP_UPDATE: TRY(verifier_update(verifier, rank, &state->chunks[instruction->chunk])); break;
        default: break;
        }
        verifier_apply_operands(state, instruction);
        for (const Instruction *half = instruction; half; half = half->second)
            verifier_record_pass(verifier, state, half);
    }
}

static Status run(Verifier *verifier)
{
    for (uint32_t r = verifier->program->rank_count; r-- > 0;)
        verifier->runnable[verifier->runnable_count++] = r;
    while (verifier->runnable_count)
        TRY(run_rank(verifier, verifier->runnable[--verifier->runnable_count]));
    return STATUS_OK;
}

static Status verify(Verifier *verifier, Arena *arena, Deadlock *deadlock)
{
    TRY(verifier_prepare(verifier));
    TRY(run(verifier));
    const bool complete = verifier->ended == verifier->program->rank_count;
    return complete ? STATUS_OK : verifier_explain_deadlock(verifier, arena, deadlock);
}

Status program_verify_deadlock(const Program *program, Arena *arena, Deadlock *deadlock, Error *error)
{
    Verifier verifier = {.program = program, .error = error, .arena = {.functions = arena->functions}};
    *deadlock = (Deadlock){0};
    const Status status = verify(&verifier, arena, deadlock);
    arena_free(&verifier.arena);
    return status;
}

Status program_verify(const Program *program, Error *error)
{
    Arena arena = {0};
    Deadlock deadlock;
    const Status status = program_verify_deadlock(program, &arena, &deadlock, error);
    arena_free(&arena);
    return status;
}
