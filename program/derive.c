#include "program/derive.h"

#include "program/operands.h"
#include "program/slots.h"

#include <string.h>

/* This file derives a forward-only program from a program. */

Program *derive_begin(const Program *program, Arena *arena)
{
    Program *derived = arena_allocate(arena, sizeof *derived);
    derived->schedule = arena_text(arena, program->schedule, strlen(program->schedule));
    derived->source = arena_text(arena, program->source, strlen(program->source));
    derived->stages = program->stages;
    derived->microbatches = program->microbatches;
    return derived;
}

Status derive_slots(const Program *derived, RankProgram *rank, const Instruction *instructions, uint32_t count,
                    Arena *arena, Error *error)
{
    slots_assign(derived, rank, instructions, count, arena);
    const SlotClass class = slots_exceeded(rank);
    if (class == SLOT_CLASSES)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_INPUT, "a rank of the %s would need %u %s buffers: there can be at most %d",
                     derived->forward_only ? "forward-only program" : "reference", rank->slots[class],
                     slot_class_names[class], PROGRAM_SLOTS_MAX);
}

static void *copy(Arena *arena, const void *array, size_t count, size_t size)
{
    void *memory = arena_array(arena, count, size);
    return count ? memcpy(memory, array, count * size) : memory;
}

/* Makes *kept, the instruction of a forward-only program that replaces `old`. False: `old` is dropped. WAITs are
   dropped too, because slots_assign adds new ones. */
static bool forward_only(const Instruction *old, Instruction *kept)
{
    const Opcode opcode = opcode_is_forward(old->opcode) ? OP_FORWARD_ONLY : (Opcode)old->opcode;
    *kept = instruction_blank(opcode, old->line);
    kept->chunk = old->chunk;
    kept->peer = old->peer;
    kept->microbatch = old->microbatch;
    return opcode_is_forward_only(kept->opcode) && opcode != OP_WAIT;
}

static Status forward_only_rank(const Program *program, const RankProgram *rank, Arena *arena, RankProgram *derived,
                                Error *error)
{
    Arena *const scratch = arena_scratch(arena);
    Instruction *kept = arena_array(scratch, 2 * (size_t)rank->instruction_count, sizeof *kept);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank->instruction_count; i++)
        for (const Instruction *half = &rank->instructions[i]; half; half = half->second)
            count += forward_only(half, &kept[count]);
    derived->chunk_count = rank->chunk_count;
    derived->chunks = copy(arena, rank->chunks, rank->chunk_count, sizeof *rank->chunks);
    const Status status = derive_slots(program, derived, kept, count, arena, error);
    arena_free(scratch);
    return status;
}

Status program_forward_only(const Program *program, Arena *arena, Program **derived, Error *error)
{
    Program *result = derive_begin(program, arena);
    result->forward_only = true;
    result->pipe_count = program->pipe_count;
    result->pipes = copy(arena, program->pipes, program->pipe_count, sizeof *program->pipes);
    result->group_count = program->group_count;
    result->groups = copy(arena, program->groups, program->group_count, sizeof *program->groups);
    result->rank_count = program->rank_count;
    result->ranks = arena_array(arena, program->rank_count, sizeof *result->ranks);
    for (uint32_t p = 0; p < program->pipe_count; p++)
        result->pipes[p].versions = NULL;
    for (uint32_t g = 0; g < program->group_count; g++) {
        Group *group = &result->groups[g];
        group->members = copy(arena, group->members, group->member_count, sizeof *group->members);
    }
    for (uint32_t r = 0; r < program->rank_count; r++)
        TRY(forward_only_rank(result, &program->ranks[r], arena, &result->ranks[r], error));
    *derived = result;
    return STATUS_OK;
}
