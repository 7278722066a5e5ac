#pragma once

/* Where the stages of generated programs are: the ranks of their copies, and the copy of each microbatch. */

#include "tests/program/generator_weights.h"

static inline bool holds_stage(const Generator *generator, uint32_t rank, uint32_t stage)
{
    const RankProgram *chunks = &generator->program->ranks[rank];
    for (uint32_t c = 0; c < chunks->chunk_count; c++)
        if (chunks->chunks[c].stage == stage)
            return true;
    return false;
}

static inline bool has_empty_rank(const Program *program)
{
    bool has = false;
    for (uint32_t r = 0; r < program->rank_count; r++)
        has |= program->ranks[r].chunk_count == 0;
    return has;
}

/* Chooses the rank of a stage. With placement RANDOM it prefers ranks without a chunk, so that in the end each rank has
   one. */
static inline uint32_t place_rank(Generator *generator, uint32_t pipe, uint32_t stage)
{
    const Shape *shape = &generator->shape;
    const uint32_t around = stage % (2 * shape->ranks);
    uint32_t rank =
        shape->placement == PLACE_V && around >= shape->ranks ? 2 * shape->ranks - 1 - around : stage % shape->ranks;
    if (shape->placement != PLACE_RANDOM)
        return pipe % 2 ? shape->ranks - 1 - rank : rank;
    const bool empty = has_empty_rank(generator->program);
    do
        rank = random_below(&generator->shape.seed, shape->ranks);
    while (holds_stage(generator, rank, stage) || (empty && generator->program->ranks[rank].chunk_count > 0));
    return rank;
}

/* A random number of copies of a stage in a pipe, at most `replicas` and the number of microbatches, that leaves ranks
   for the later pipes; 1 unless the placement is RANDOM. */
static inline uint32_t random_copies(Generator *generator, uint32_t pipe)
{
    const Shape *shape = &generator->shape;
    if (shape->replicas < 2 || shape->placement != PLACE_RANDOM)
        return 1;
    const uint32_t free = shape->ranks - pipe * shape->replicas - (shape->pipes - 1 - pipe);
    const uint32_t room = pipe * shape->replicas + shape->pipes - 1 - pipe < shape->ranks ? free : 1;
    uint32_t most = shape->replicas < room ? shape->replicas : room;
    most = most < shape->microbatches ? most : shape->microbatches;
    return 1 + random_below(&generator->shape.seed, most);
}

/* Places a stage of a pipe: the ranks of its copies, and the copy that each microbatch uses. Each copy gets at least
   one microbatch. */
static inline void place_stage(Generator *generator, uint32_t p, uint32_t s)
{
    const Shape *shape = &generator->shape;
    const uint32_t copies = random_copies(generator, p);
    Home *places = &generator->places[((size_t)p * shape->stages + s) * shape->microbatches];
    for (uint32_t k = 0; k < copies; k++) {
        const uint32_t r = place_rank(generator, p, s);
        RankProgram *rank = &generator->program->ranks[r];
        rank->chunks[rank->chunk_count] = (Chunk){(uint16_t)p, (uint16_t)s};
        generator->streams[r].pools[SLOT_WEIGHTS].count++;
        places[k] = (Home){(uint16_t)r, (uint8_t)rank->chunk_count++};
    }
    for (uint32_t m = copies; m < shape->microbatches; m++)
        places[m] = places[copies > 1 ? random_below(&generator->shape.seed, copies) : 0];
}

static inline void make_group(Generator *generator, uint32_t stage)
{
    Program *program = generator->program;
    Group group = {.stage = (uint16_t)stage,
                   .members = arena_array(generator->arena, program->rank_count, sizeof(Home))};
    for (uint32_t p = 0; p < program->pipe_count; p++)
        for (uint32_t r = 0; r < program->rank_count; r++)
            for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++)
                if (program->ranks[r].chunks[c].pipe == p && program->ranks[r].chunks[c].stage == stage)
                    group.members[group.member_count++] = (Home){(uint16_t)r, (uint8_t)c};
    if (group.member_count > 1)
        program->groups[program->group_count++] = group;
}

static inline void place_stages(Generator *generator)
{
    const Shape *shape = &generator->shape;
    Program *program = generator->program;
    for (uint32_t p = 0; p < shape->pipes; p++) {
        program->pipes[p] = (Pipe){shape->microbatches, p * shape->microbatches, NULL};
        if (shape->delayed)
            program->pipes[p].versions =
                arena_array(generator->arena, shape->microbatches, sizeof *program->pipes[p].versions);
        for (uint32_t m = 0; shape->delayed && m < shape->microbatches; m++)
            program->pipes[p].versions[m] = wanted_version(shape, m);
        for (uint32_t s = 0; s < shape->stages; s++)
            place_stage(generator, p, s);
    }
    const uint32_t versions = shape->pipes * shape->microbatches + 1;
    for (uint32_t r = 0; r < shape->ranks; r++)
        for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++) {
            WeightState *weights = weights_at(generator, (Home){(uint16_t)r, (uint8_t)c});
            weights->slots = arena_array(generator->arena, versions, sizeof *weights->slots);
            weights->versions = arena_array(generator->arena, versions, sizeof *weights->versions);
            weights->slots[weights->count++] = (uint16_t)c;
        }
    for (uint32_t s = 0; s < shape->stages; s++)
        make_group(generator, s);
}
