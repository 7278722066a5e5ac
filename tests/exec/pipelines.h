#pragma once

/* Small programs made without the compiler: one or two pipes, one stage of each pipe per rank, first all F of all
   pipes, then all B. Every message has its own slot, which keeps the plan simple. */

#include "program/program.h"

#include <string.h>

/* Message slots of a microbatch on a chunk. X, DX: the activation received from the previous stage, and the gradient
   sent back to it. Y, DY: the activation sent to the next stage, and the gradient received from it. The first stage has
   no X and DX, the last stage no Y and DY. */
enum { SLOT_X, SLOT_DX, SLOT_Y, SLOT_DY };

static inline uint32_t pipeline_sides(uint32_t stage, uint32_t stages)
{
    return (stage > 0 ? 1u : 0u) + (stage + 1 < stages ? 1u : 0u);
}

static inline Instruction *pipeline_message(Instruction *next, uint8_t opcode, uint32_t chunk, uint32_t microbatch,
                                            uint32_t peer, uint16_t slot, uint32_t line)
{
    memset(next->slot, 0xff, sizeof next->slot);
    next->opcode = opcode;
    next->chunk = (uint8_t)chunk;
    next->microbatch = microbatch;
    next->peer = (uint16_t)peer;
    next->message = slot;
    next->line = line;
    next++;
    memset(next->slot, 0xff, sizeof next->slot);
    next->opcode = OP_WAIT;
    next->message = slot;
    next->line = line;
    return next + 1;
}

static inline Instruction *pipeline_pass(Instruction *next, bool forward, uint32_t chunk, uint32_t microbatch,
                                         uint32_t microbatches, uint32_t stage, uint32_t stages, uint32_t before,
                                         uint32_t after)
{
    const uint32_t line = forward ? 10 + chunk : 20 + chunk;
    const uint32_t first = (chunk * microbatches + microbatch) * 2 * pipeline_sides(stage, stages);
    uint16_t slot[4];
    for (uint32_t which = 0; which < 4; which++)
        slot[which] = (uint16_t)(first + which - (stage > 0 || which < SLOT_Y ? 0 : 2));
    if (forward && stage > 0)
        next = pipeline_message(next, OP_RECEIVE_FORWARD, chunk, microbatch, before, slot[SLOT_X], line);
    if (!forward && stage + 1 < stages)
        next = pipeline_message(next, OP_RECEIVE_BACKWARD, chunk, microbatch, after, slot[SLOT_DY], line);
    next->opcode = forward ? OP_FORWARD : OP_BACKWARD;
    next->chunk = (uint8_t)chunk;
    next->microbatch = microbatch;
    next->line = line;
    memset(next->slot, 0xff, sizeof next->slot);
    if (stage > 0)
        next->x = slot[SLOT_X];
    if (forward && stage + 1 < stages)
        next->y = slot[SLOT_Y];
    if (!forward && stage > 0)
        next->dx = slot[SLOT_DX];
    if (!forward && stage + 1 < stages)
        next->dy = slot[SLOT_DY];
    next->context = next->stash = (uint16_t)(chunk * microbatches + microbatch);
    next->weights = (uint16_t)chunk;
    if (!forward)
        next->gradient = 0;
    next++;
    if (forward && stage + 1 < stages)
        next = pipeline_message(next, OP_SEND_FORWARD, chunk, microbatch, after, slot[SLOT_Y], line);
    if (!forward && stage > 0)
        next = pipeline_message(next, OP_SEND_BACKWARD, chunk, microbatch, before, slot[SLOT_DX], line);
    return next;
}

/* Pipe 0 has stage s on rank s, pipe 1 on rank ranks-1-s (`ranks` must be even for two pipes). `microbatches` per
   pipe. */
static inline Program *pipeline_program(Arena *arena, uint32_t ranks, uint32_t pipes, uint32_t microbatches)
{
    Program *program = arena_allocate(arena, sizeof *program);
    program->schedule = arena_format(arena, "pipeline");
    program->source = arena_format(arena, "pipeline.dps");
    program->stages = program->rank_count = ranks;
    program->microbatches = pipes * microbatches;
    program->pipe_count = pipes;
    program->pipes = arena_array(arena, pipes, sizeof *program->pipes);
    for (uint32_t p = 0; p < pipes; p++)
        program->pipes[p] = (Pipe){.microbatches = microbatches, .first = p * microbatches};
    program->group_count = pipes > 1 ? ranks : 0;
    program->groups = arena_array(arena, program->group_count, sizeof *program->groups);
    for (uint32_t s = 0; s < program->group_count; s++) {
        Group *group = &program->groups[s];
        group->stage = (uint16_t)s;
        group->member_count = 2;
        group->members = arena_array(arena, 2, sizeof *group->members);
        group->members[0] = (Home){(uint16_t)s, 0};
        group->members[1] = (Home){(uint16_t)(ranks - 1 - s), 1};
    }
    program->ranks = arena_array(arena, ranks, sizeof *program->ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        RankProgram *rank = &program->ranks[r];
        rank->chunk_count = pipes;
        rank->chunks = arena_array(arena, pipes, sizeof *rank->chunks);
        rank->slots[SLOT_MESSAGE] = pipes * microbatches * 2 * pipeline_sides(r, ranks);
        rank->slots[SLOT_CONTEXT] = rank->slots[SLOT_STASH] = rank->peak_activations = pipes * microbatches;
        rank->slots[SLOT_GRADIENT] = 1;
        rank->slots[SLOT_WEIGHTS] = pipes;
        rank->instructions = arena_array(arena, pipes * microbatches * 10 + 3 * pipes + 2, sizeof *rank->instructions);
        Instruction *next = rank->instructions;
        for (uint32_t forward = 2; forward-- > 0;)
            for (uint32_t p = 0; p < pipes; p++) {
                const uint32_t stage = p == 0 ? r : ranks - 1 - r;
                rank->chunks[p] = (Chunk){(uint16_t)p, (uint16_t)stage};
                for (uint32_t m = 0; m < microbatches; m++)
                    next = pipeline_pass(next, forward, p, m, microbatches, stage, ranks, p == 0 ? r - 1 : r + 1,
                                         p == 0 ? r + 1 : r - 1);
            }
        for (uint32_t s = 0; s < ranks; s++)
            for (uint32_t p = 0; p < pipes; p++)
                if (rank->chunks[p].stage == s)
                    *next++ = (Instruction){.opcode = OP_REDUCE, .chunk = (uint8_t)p, .line = 30};
        for (uint32_t p = 0; p < pipes; p++)
            *next++ = (Instruction){.opcode = OP_WAIT_REDUCE, .chunk = (uint8_t)p, .line = 30};
        *next++ = (Instruction){.opcode = OP_NORM, .line = 31};
        for (uint32_t p = 0; p < pipes; p++)
            *next++ = (Instruction){.opcode = OP_UPDATE, .chunk = (uint8_t)p, .line = 32};
        *next++ = (Instruction){.opcode = OP_END, .line = 33};
        rank->instruction_count = (uint32_t)(next - rank->instructions);
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            if (rank->instructions[i].opcode >= OP_REDUCE)
                memset(rank->instructions[i].slot, 0xff, sizeof rank->instructions[i].slot);
    }
    return program;
}
