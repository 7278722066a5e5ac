#include "runtime/program/operands.h"

#include <string.h>

/* Programs made from programs. */

static Status no_memory(Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "no memory for the program");
}

static Instruction blank(Opcode opcode, uint32_t line)
{
    return (Instruction){.opcode = (uint8_t)opcode,
                         .slot = {SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE},
                         .line = line};
}

/* Names and numbers; pipes, groups and ranks are still to be filled in. */
static Program *begin(const Program *program, Arena *arena)
{
    Program *derived = arena_allocate(arena, sizeof *derived);
    if (!derived)
        return NULL;
    derived->schedule = arena_text(arena, program->schedule, strlen(program->schedule));
    derived->source = arena_text(arena, program->source, strlen(program->source));
    derived->stages = program->stages;
    derived->microbatches = program->microbatches;
    return derived->schedule && derived->source ? derived : NULL;
}

static void *copy(Arena *arena, const void *array, size_t count, size_t size)
{
    void *memory = arena_array(arena, count, size);
    if (memory && count)
        memcpy(memory, array, count * size);
    return memory;
}

/* --- forward only --- */

/* The message slots of one rank, planned anew: far fewer are live at once without a backward. */
typedef struct Replan {
    uint16_t *renamed;   /* [old slot] */
    bool *is_send;       /* [old slot]: in flight to be sent, not received */
    bool *is_gradient;   /* [old slot]: in flight with a gradient; its WAIT goes */
    uint16_t *free;      /* a stack */
    uint32_t free_count, slot_count;
} Replan;

static uint16_t fill(Replan *plan, uint16_t old)
{
    return plan->renamed[old] = plan->free_count ? plan->free[--plan->free_count] : (uint16_t)plan->slot_count++;
}

static uint16_t release(Replan *plan, uint16_t old)
{
    return plan->free[plan->free_count++] = plan->renamed[old];
}

/* The instruction as it is in the forward-only program; false when it is not there. */
static bool keep_forward(Replan *plan, Instruction *instruction)
{
    uint16_t *slot = instruction->slot;
    switch ((Opcode)instruction->opcode) {
    case OP_FORWARD:
    case OP_FORWARD_ONLY:
        instruction->opcode = OP_FORWARD_ONLY;
        slot[1] = slot[1] == SLOT_NONE ? SLOT_NONE : fill(plan, slot[1]);
        slot[0] = slot[0] == SLOT_NONE ? SLOT_NONE : release(plan, slot[0]);
        slot[2] = slot[3] = 0; /* scratch: free between any two passes */
        return true;
    case OP_SEND_FORWARD:
        plan->is_send[slot[0]] = true;
        plan->is_gradient[slot[0]] = false;
        slot[0] = plan->renamed[slot[0]];
        return true;
    case OP_RECEIVE_FORWARD:
        plan->is_send[slot[0]] = plan->is_gradient[slot[0]] = false;
        slot[0] = fill(plan, slot[0]);
        return true;
    case OP_SEND_BACKWARD:
    case OP_RECEIVE_BACKWARD: plan->is_gradient[slot[0]] = true; return false;
    case OP_WAIT:
        if (plan->is_gradient[slot[0]])
            return false;
        slot[0] = plan->is_send[slot[0]] ? release(plan, slot[0]) : plan->renamed[slot[0]];
        return true;
    default: return opcode_is_forward_only(instruction->opcode);
    }
}

static Status forward_only_rank(const RankProgram *rank, Arena *arena, RankProgram *derived, Error *error)
{
    const uint32_t slots = rank->slots[SLOT_MESSAGE];
    Replan plan = {.renamed = arena_array(arena, slots, sizeof *plan.renamed),
                   .is_send = arena_array(arena, slots, sizeof *plan.is_send),
                   .is_gradient = arena_array(arena, slots, sizeof *plan.is_gradient),
                   .free = arena_array(arena, slots, sizeof *plan.free)};
    derived->chunk_count = rank->chunk_count;
    derived->chunks = copy(arena, rank->chunks, rank->chunk_count, sizeof *rank->chunks);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rank->instruction_count; i++)
        kept += opcode_is_forward_only(rank->instructions[i].opcode) || rank->instructions[i].opcode == OP_FORWARD;
    derived->instructions = arena_array(arena, kept, sizeof *derived->instructions);
    if (!plan.renamed || !plan.is_send || !plan.is_gradient || !plan.free || !derived->chunks || !derived->instructions)
        return no_memory(error);
    for (uint32_t i = 0; i < rank->instruction_count; i++) {
        Instruction instruction = rank->instructions[i];
        if (keep_forward(&plan, &instruction))
            derived->instructions[derived->instruction_count++] = instruction;
    }
    derived->slots[SLOT_MESSAGE] = plan.slot_count;
    derived->slots[SLOT_CONTEXT] = derived->slots[SLOT_STASH] = rank->chunk_count > 0;
    return STATUS_OK;
}

Status program_forward_only(const Program *program, Arena *arena, Program **derived, Error *error)
{
    Program *result = begin(program, arena);
    if (!result)
        return no_memory(error);
    result->forward_only = true;
    result->pipe_count = program->pipe_count;
    result->pipes = copy(arena, program->pipes, program->pipe_count, sizeof *program->pipes);
    result->group_count = program->group_count;
    result->groups = copy(arena, program->groups, program->group_count, sizeof *program->groups);
    result->rank_count = program->rank_count;
    result->ranks = arena_array(arena, program->rank_count, sizeof *result->ranks);
    if (!result->pipes || !result->groups || !result->ranks)
        return no_memory(error);
    for (uint32_t g = 0; g < program->group_count; g++) {
        Group *group = &result->groups[g];
        group->members = copy(arena, group->members, group->member_count, sizeof *group->members);
        if (!group->members)
            return no_memory(error);
    }
    for (uint32_t r = 0; r < program->rank_count; r++)
        TRY(forward_only_rank(&program->ranks[r], arena, &result->ranks[r], error));
    *derived = result;
    return STATUS_OK;
}

/* --- reference --- */

static void find_lines(const Program *program, uint32_t lines[OPCODE_COUNT])
{
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            if (!lines[rank->instructions[i].opcode])
                lines[rank->instructions[i].opcode] = rank->instructions[i].line;
    }
    if (!lines[OP_FORWARD])
        lines[OP_FORWARD] = lines[OP_FORWARD_ONLY];
    if (!lines[OP_BACKWARD])
        lines[OP_BACKWARD] = lines[OP_BACKWARD_INPUT];
}

/* Slots of a microbatch: the activation that stage s makes is in slot s, until the B of stage s+1 has taken it and the B of
   stage s fills it with its gradient. */
static Instruction reference_pass(uint32_t opcode, uint32_t stage, uint32_t stages, uint32_t microbatch, uint32_t line)
{
    const uint16_t before = stage > 0 ? (uint16_t)(stage - 1) : SLOT_NONE;
    const uint16_t after = stage + 1 < stages ? (uint16_t)(stage + 1) : SLOT_NONE;
    const uint16_t own = (uint16_t)stage;
    Instruction pass = blank(opcode, line);
    pass.chunk = (uint8_t)stage;
    pass.microbatch = microbatch;
    pass.slot[0] = before;
    pass.slot[2] = pass.slot[3] = own;
    if (opcode == OP_FORWARD) {
        pass.slot[1] = after == SLOT_NONE ? SLOT_NONE : own;
    } else {
        pass.slot[1] = before == SLOT_NONE ? SLOT_NONE : own;
        pass.slot[4] = after;
        pass.slot[5] = 0;
    }
    return pass;
}

static Status reference_rank(const Program *program, Arena *arena, RankProgram *rank, Error *error)
{
    const uint32_t stages = program->stages, microbatches = program->microbatches;
    uint32_t lines[OPCODE_COUNT] = {0};
    find_lines(program, lines);
    rank->chunk_count = stages;
    rank->chunks = arena_array(arena, stages, sizeof *rank->chunks);
    rank->slots[SLOT_MESSAGE] = stages > 1 ? stages : 0;
    rank->slots[SLOT_CONTEXT] = rank->slots[SLOT_STASH] = stages;
    rank->slots[SLOT_GRADIENT] = 1;
    rank->peak_activations = stages;
    rank->instructions = arena_array(arena, 2 * (size_t)stages * microbatches + stages + 2, sizeof *rank->instructions);
    if (!rank->chunks || !rank->instructions)
        return no_memory(error);
    Instruction *next = rank->instructions;
    for (uint32_t m = 0; m < microbatches; m++) {
        for (uint32_t s = 0; s < stages; s++)
            *next++ = reference_pass(OP_FORWARD, s, stages, m, lines[OP_FORWARD]);
        for (uint32_t s = stages; s-- > 0;)
            *next++ = reference_pass(OP_BACKWARD, s, stages, m, lines[OP_BACKWARD]);
    }
    *next++ = blank(OP_NORM, lines[OP_NORM]);
    for (uint32_t s = 0; s < stages; s++) {
        rank->chunks[s].stage = (uint16_t)s;
        *next = blank(OP_UPDATE, lines[OP_UPDATE]);
        next++->chunk = (uint8_t)s;
    }
    *next++ = blank(OP_END, lines[OP_END]);
    rank->instruction_count = (uint32_t)(next - rank->instructions);
    return STATUS_OK;
}

Status program_reference(const Program *program, Arena *arena, Program **derived, Error *error)
{
    if (program->stages > PROGRAM_CHUNKS_MAX)
        return error_set(error, STATUS_BAD_INPUT, "%u stages: a reference on one rank can hold %d", program->stages,
                         PROGRAM_CHUNKS_MAX);
    Program *result = begin(program, arena);
    if (!result)
        return no_memory(error);
    result->pipe_count = result->rank_count = 1;
    result->pipes = arena_array(arena, 1, sizeof *result->pipes);
    result->groups = arena_array(arena, 0, sizeof *result->groups);
    result->ranks = arena_array(arena, 1, sizeof *result->ranks);
    if (!result->pipes || !result->groups || !result->ranks)
        return no_memory(error);
    result->pipes[0].microbatches = program->microbatches;
    TRY(reference_rank(program, arena, &result->ranks[0], error));
    *derived = result;
    return program->forward_only ? program_forward_only(result, arena, derived, error) : STATUS_OK;
}
