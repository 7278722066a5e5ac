#include "runtime/program/derive.h"

#include "runtime/program/operands.h"

#include <string.h>

/* The forward half of a program. */

static Status no_memory(Error *error) { return error_set(error, STATUS_RUN_FAILED, "no memory for the program"); }

Program *derive_begin(const Program *program, Arena *arena)
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

/* The message slots of one rank, planned anew: far fewer are live at once without a backward. */
typedef struct Replan {
    uint16_t *renamed; /* [old slot] */
    bool *is_send;     /* [old slot]: in flight to be sent, not received */
    bool *is_gradient; /* [old slot]: in flight with a gradient; its WAIT goes */
    uint16_t *free;    /* a stack */
    uint32_t free_count, slot_count;
} Replan;

static uint16_t fill(Replan *plan, uint16_t old)
{
    return plan->renamed[old] = plan->free_count ? plan->free[--plan->free_count] : (uint16_t)plan->slot_count++;
}

static uint16_t release(Replan *plan, uint16_t old) { return plan->free[plan->free_count++] = plan->renamed[old]; }

/* The instruction as it is in the forward-only program; false when it is not there. */
static bool keep_forward(Replan *plan, Instruction *instruction)
{
    uint16_t *slot = &instruction->message;
    switch ((Opcode)instruction->opcode) {
    case OP_FORWARD:
    case OP_FORWARD_ONLY:
        instruction->opcode = OP_FORWARD_ONLY;
        instruction->y = instruction->y == SLOT_NONE ? SLOT_NONE : fill(plan, instruction->y);
        instruction->x = instruction->x == SLOT_NONE ? SLOT_NONE : release(plan, instruction->x);
        instruction->context = instruction->stash = 0; /* scratch: free between any two passes */
        instruction->weights = instruction->chunk;
        return true;
    case OP_SEND_FORWARD:
        plan->is_send[*slot] = true;
        plan->is_gradient[*slot] = false;
        *slot = plan->renamed[*slot];
        return true;
    case OP_RECEIVE_FORWARD:
        plan->is_send[*slot] = plan->is_gradient[*slot] = false;
        *slot = fill(plan, *slot);
        return true;
    case OP_SEND_BACKWARD:
    case OP_RECEIVE_BACKWARD: plan->is_gradient[*slot] = true; return false;
    case OP_WAIT:
        if (plan->is_gradient[*slot])
            return false;
        *slot = plan->is_send[*slot] ? release(plan, *slot) : plan->renamed[*slot];
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
    derived->slots[SLOT_CONTEXT] = derived->slots[SLOT_STASH] = 1;
    derived->slots[SLOT_WEIGHTS] = rank->chunk_count;
    return STATUS_OK;
}

Status program_forward_only(const Program *program, Arena *arena, Program **derived, Error *error)
{
    Program *result = derive_begin(program, arena);
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
    for (uint32_t p = 0; p < program->pipe_count; p++)
        result->pipes[p].versions = NULL;
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
