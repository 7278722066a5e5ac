#pragma once

/* The versions of the weights in generated programs, and the instructions that make them: sums and updates. */

#include "tests/program/generator_streams.h"

static inline WeightState *weights_at(const Generator *generator, Home place)
{
    return &generator->weights[(size_t)place.rank * generator->shape.pipes * generator->shape.stages + place.chunk];
}

static inline WeightState *weight_state(const Generator *generator, Pass pass)
{
    return weights_at(generator, place_of(generator, pass));
}

static inline uint32_t slot_of_version(const WeightState *weights, uint32_t version)
{
    uint32_t i = 0;
    while (weights->versions[i] != version)
        i++;
    return i;
}

static inline uint32_t wanted_version(const Shape *shape, uint32_t microbatch)
{
    return microbatch / shape->update > 0 ? microbatch / shape->update - 1 : 0;
}

/* Whether a microbatch that uses this copy needs the version: from its F to its I or B, and with `delayed` also
   before. */
static inline bool is_needed(const Generator *generator, Home place, uint32_t version)
{
    const Shape *shape = &generator->shape;
    const Chunk *chunk = &generator->program->ranks[place.rank].chunks[place.chunk];
    for (uint32_t m = 0; m < shape->microbatches; m++) {
        const Pass pass = {chunk->pipe, chunk->stage, m};
        const PassState *state = pass_state(generator, pass);
        if (place_of(generator, pass).rank == place.rank &&
            (state->f ? !state->i && state->version == version : shape->delayed && wanted_version(shape, m) == version))
            return true;
    }
    return false;
}

static inline void emit_async_update(Generator *generator, Home place, uint32_t gathered, bool home)
{
    WeightState *weights = weights_at(generator, place);
    const uint32_t newest = slot_of_version(weights, weights->newest);
    uint32_t i = home ? 0 : random_below(&generator->shape.seed, 4) ? newest : 0;
    while (i < weights->count && is_needed(generator, place, weights->versions[i]))
        i++;
    if (i == weights->count) {
        weights->slots[i] = (uint16_t)generator->streams[place.rank].pools[SLOT_WEIGHTS].count++;
        weights->count++;
    }
    Instruction *update_async = emit(generator, place.rank, OP_ASYNC_UPDATE);
    update_async->chunk = place.chunk;
    update_async->microbatch = gathered;
    update_async->newest = weights->slots[newest];
    update_async->next = weights->slots[i];
    weights->versions[i] = ++weights->newest;
}

/* Posts the sum on all copies of a stage at once. */
static inline void post_sum(Generator *generator, uint32_t stage)
{
    const Group *group = program_group(generator->program, stage);
    const Home alone = place_of(generator, (Pass){0, stage, 0});
    for (uint32_t m = 0; m < (group ? group->member_count : 1u); m++) {
        const Home home = group ? group->members[m] : alone;
        emit(generator, home.rank, OP_REDUCE)->chunk = home.chunk;
    }
    generator->posted[stage] = true;
}

static inline void update_stage_async(Generator *generator, uint32_t stage, bool home)
{
    const Group *group = program_group(generator->program, stage);
    const Home alone = place_of(generator, (Pass){0, stage, 0});
    post_sum(generator, stage);
    for (uint32_t m = 0; m < (group ? group->member_count : 1u); m++) {
        const Home copy = group ? group->members[m] : alone;
        emit(generator, copy.rank, OP_WAIT_REDUCE)->chunk = copy.chunk;
        emit_async_update(generator, copy, generator->gathered[stage], home);
    }
    generator->gathered[stage] = 0;
}

/* Called after each B and each W. In an asynchronous program it adds the U of the stage once enough backwards have run;
   finish() adds the last U, for the remaining gradients. In a synchronous one it may post the sum after the last
   backward of the stage; finish() posts the sums that are not posted here. */
static inline void gather(Generator *generator, Pass pass)
{
    const Shape *shape = &generator->shape;
    const uint32_t s = pass.stage;
    const bool last = ++generator->completed[s] == shape->pipes * shape->microbatches;
    if (!shape->update) {
        if (last && random_below(&generator->shape.seed, 2))
            post_sum(generator, s);
        return;
    }
    if (++generator->gathered[s] >= shape->update && !last)
        update_stage_async(generator, s, false);
}

static inline void use_weights(Generator *generator, Pass pass, Instruction *instruction)
{
    const WeightState *weights = weight_state(generator, pass);
    instruction->weights = generator->shape.update
                               ? weights->slots[slot_of_version(weights, pass_state(generator, pass)->version)]
                               : instruction->chunk;
}
