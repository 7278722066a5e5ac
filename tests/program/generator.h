#pragma once

/* Generates well-formed programs of many shapes. A list scheduler repeatedly picks a random rank and a pass that is
   ready there. A message is added to the streams of both ranks at once, so the order of the picks proves that there is
   no deadlock. */

#include "tests/program/generator_places.h"
#include "tests/program/same.h"

#include <stdlib.h>

static inline void compute_forward(Generator *generator, Pass pass)
{
    const uint32_t rank = place_of(generator, pass).rank;
    PassState *state = pass_state(generator, pass);
    Stream *stream = &generator->streams[rank];
    state->y = pass.stage + 1 < generator->shape.stages ? slot_take(generator, rank, SLOT_MESSAGE) : SLOT_NONE;
    state->context = slot_take(generator, rank, SLOT_CONTEXT);
    state->stash = slot_take(generator, rank, SLOT_STASH);
    Instruction *instruction = emit_pass(generator, OP_FORWARD, pass);
    instruction->x = state->x;
    instruction->y = state->y;
    instruction->context = state->context;
    instruction->stash = state->stash;
    if (generator->shape.update)
        state->version = generator->shape.delayed ? wanted_version(&generator->shape, pass.microbatch)
                                                  : weight_state(generator, pass)->newest;
    use_weights(generator, pass, instruction);
    state->f = true;
    if (++stream->held > stream->peak)
        stream->peak = stream->held;
}

static inline void compute_backward(Generator *generator, Pass pass, bool split)
{
    const uint32_t rank = place_of(generator, pass).rank;
    PassState *state = pass_state(generator, pass);
    state->dx = pass.stage > 0 ? slot_take(generator, rank, SLOT_MESSAGE) : SLOT_NONE;
    state->gradient = slot_take(generator, rank, SLOT_GRADIENT);
    Instruction *instruction = emit_pass(generator, split ? OP_BACKWARD_INPUT : OP_BACKWARD, pass);
    instruction->x = state->x;
    instruction->dx = state->dx;
    instruction->context = state->context;
    instruction->stash = state->stash;
    instruction->dy = state->dy;
    instruction->gradient = state->gradient;
    use_weights(generator, pass, instruction);
    slot_give(generator, rank, SLOT_CONTEXT, state->context);
    state->i = true;
    if (split)
        return;
    state->w = true;
    slot_give(generator, rank, SLOT_MESSAGE, state->x);
    slot_give(generator, rank, SLOT_MESSAGE, state->dy);
    slot_give(generator, rank, SLOT_STASH, state->stash);
    slot_give(generator, rank, SLOT_GRADIENT, state->gradient);
    generator->streams[rank].held--;
}

static inline void compute_weight(Generator *generator, Pass pass, uint16_t put_off)
{
    const uint32_t rank = place_of(generator, pass).rank;
    PassState *state = pass_state(generator, pass);
    Instruction *instruction = emit_pass(generator, OP_BACKWARD_WEIGHT, pass);
    instruction->put_off = put_off;
    instruction->x = state->x;
    instruction->stash = state->stash;
    instruction->dy = state->dy;
    instruction->gradient = state->gradient;
    slot_give(generator, rank, SLOT_MESSAGE, state->x);
    slot_give(generator, rank, SLOT_MESSAGE, state->dy);
    slot_give(generator, rank, SLOT_STASH, state->stash);
    slot_give(generator, rank, SLOT_GRADIENT, state->gradient);
    state->w = true;
    generator->streams[rank].held--;
}

/* Joins the last two passes of a rank, an F and a B or I, to an F&B. `put_off`: bits of the components whose weight
   gradients the recipe puts off; 0: none, or a split backward. */
static inline void join_halves(Generator *generator, uint32_t rank, uint16_t put_off)
{
    Stream *stream = &generator->streams[rank];
    Instruction *forward = &stream->instructions[stream->count - 2];
    forward->opcode = OP_OVERLAP;
    forward->second = arena_allocate(generator->arena, sizeof *forward->second);
    *forward->second = forward[1];
    forward->second->put_off = put_off;
    stream->count--;
}

typedef enum PassKind { PASS_KIND_FORWARD, PASS_KIND_BACKWARD, PASS_KIND_WEIGHT, PASS_KINDS } PassKind;

static inline bool is_ready(const Generator *generator, PassKind kind, Pass pass)
{
    const PassState *state = pass_state(generator, pass);
    const Pass before = {pass.pipe, pass.stage - 1, pass.microbatch},
               after = {pass.pipe, pass.stage + 1, pass.microbatch};
    switch (kind) {
    case PASS_KIND_FORWARD:
        return !state->f && (pass.stage == 0 || pass_state(generator, before)->f) &&
               (!generator->shape.delayed ||
                wanted_version(&generator->shape, pass.microbatch) <= weight_state(generator, pass)->newest);
    case PASS_KIND_BACKWARD:
        return state->f && !state->i && (pass.stage + 1 == generator->shape.stages || pass_state(generator, after)->i);
    default: return state->i && !state->w;
    }
}

/* Finds a pass of this kind that is ready on the rank: the lowest microbatch of the first chunk that has one, where the
   search starts at a random chunk. False: none is ready. */
static inline bool find_ready(Generator *generator, uint32_t rank, PassKind kind, Pass *found)
{
    const RankProgram *chunks = &generator->program->ranks[rank];
    const uint32_t count = chunks->chunk_count;
    const uint32_t begin = count ? random_below(&generator->shape.seed, count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const Chunk *chunk = &chunks->chunks[(begin + i) % count];
        for (uint32_t m = 0; m < generator->shape.microbatches; m++) {
            *found = (Pass){chunk->pipe, chunk->stage, m};
            if (place_of(generator, *found).rank == rank && is_ready(generator, kind, *found))
                return true;
        }
    }
    return false;
}

static inline bool step_rank(Generator *generator, uint32_t rank)
{
    uint64_t *seed = &generator->shape.seed;
    static const PassKind preferences[][PASS_KINDS] = {{PASS_KIND_FORWARD, PASS_KIND_BACKWARD, PASS_KIND_WEIGHT},
                                                       {PASS_KIND_BACKWARD, PASS_KIND_FORWARD, PASS_KIND_WEIGHT},
                                                       {PASS_KIND_WEIGHT, PASS_KIND_BACKWARD, PASS_KIND_FORWARD}};
    const Preference preference = generator->shape.preference;
    const PassKind *kinds = preferences[preference == PREFER_ANY ? random_below(seed, 3) : (uint32_t)preference];
    Pass pass = {0}, other = {0};
    int chosen = 0;
    while (chosen < PASS_KINDS && !find_ready(generator, rank, kinds[chosen], &pass))
        chosen++;
    if (chosen == PASS_KINDS)
        return false;
    if (random_below(seed, 2))
        settle_sends(generator, rank);
    const uint32_t last = generator->shape.stages - 1;
    const PassKind kind = kinds[chosen];
    if (kind == PASS_KIND_WEIGHT) {
        compute_weight(generator, pass, 0);
        gather(generator, pass);
        return true;
    }
    bool pair = random_below(seed, 100) < generator->shape.overlap &&
                find_ready(generator, rank, kind == PASS_KIND_FORWARD ? PASS_KIND_BACKWARD : PASS_KIND_FORWARD, &other);
    pair = pair && (pass.pipe != other.pipe || pass.microbatch != other.microbatch);
    const Pass forward = kind == PASS_KIND_FORWARD ? pass : other, backward = kind == PASS_KIND_FORWARD ? other : pass;
    const bool has_forward = pair || kind == PASS_KIND_FORWARD, has_backward = pair || kind == PASS_KIND_BACKWARD;
    if (has_forward)
        await(generator, forward, true);
    if (has_backward)
        await(generator, backward, false);
    if (has_forward)
        compute_forward(generator, forward);
    const bool split = has_backward && random_below(seed, 100) < generator->shape.split;
    /* a split backward leaves all weight gradients to its W, whatever the recipe says */
    const uint16_t put_off =
        pair && !split ? recipes_pair_put_off(&generator->program->recipes, place_of(generator, forward).chunk,
                                              place_of(generator, backward).chunk)
                       : 0;
    if (has_backward)
        compute_backward(generator, backward, split || put_off);
    if (pair)
        join_halves(generator, rank, put_off);
    if (has_backward && pass_state(generator, backward)->w)
        gather(generator, backward);
    if (has_forward && forward.stage < last)
        hand_over(generator, forward, forward.stage + 1, true);
    if (has_backward && backward.stage > 0)
        hand_over(generator, backward, backward.stage - 1, false);
    if (put_off) {
        compute_weight(generator, backward, put_off);
        gather(generator, backward);
    }
    return true;
}

static inline void finish(Generator *generator)
{
    Program *program = generator->program;
    for (uint32_t r = 0; r < program->rank_count; r++)
        settle_sends(generator, r);
    for (uint32_t s = 0; program->asynchronous && s < program->stages; s++)
        update_stage_async(generator, s, true);
    for (uint32_t s = 0; !program->asynchronous && s < program->stages; s++)
        if (!generator->posted[s])
            post_sum(generator, s);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        RankProgram *rank = &program->ranks[r];
        Stream *stream = &generator->streams[r];
        for (uint32_t c = 0; !program->asynchronous && c < rank->chunk_count; c++)
            emit(generator, r, OP_WAIT_REDUCE)->chunk = (uint8_t)c;
        if (!program->asynchronous)
            emit(generator, r, OP_NORM);
        for (uint32_t c = 0; !program->asynchronous && c < rank->chunk_count; c++)
            emit(generator, r, OP_UPDATE)->chunk = (uint8_t)c;
        emit(generator, r, OP_END);
        rank->instructions = stream->instructions;
        rank->instruction_count = stream->count;
        rank->peak_activations = stream->peak;
        for (int class = 0; class < SLOT_CLASSES; class ++)
            rank->slots[class] = stream->pools[class].count;
    }
}

static inline Recipe make_recipe(const Shape *shape, uint64_t *seed)
{
    Recipe recipe = random_recipe(seed);
    if (shape->after && random_below(seed, 100) < shape->after)
        put_weights_off(&recipe, seed);
    return recipe;
}

/* Makes a common recipe, recipes for the F&Bs of one or two random pairs of chunks, both or neither. */
static inline void make_recipes(Generator *generator)
{
    const Shape *shape = &generator->shape;
    Recipes *recipes = &generator->program->recipes;
    uint64_t seed = shape->seed;
    if (random_below(&seed, 2)) {
        recipes->common = arena_allocate(generator->arena, sizeof *recipes->common);
        *recipes->common = make_recipe(shape, &seed);
    }
    if (!random_below(&seed, 2))
        return;
    const uint32_t chunks = generator->program->ranks[0].chunk_count;
    recipes->own = arena_array(generator->arena, 2, sizeof *recipes->own);
    for (int i = 0; i < 2; i++) {
        const uint32_t first = random_below(&seed, chunks), second = random_below(&seed, chunks);
        if (recipes_find(recipes, first, second) == recipes->count)
            recipes->own[recipes->count++] = (ChunkRecipe){(uint8_t)first, (uint8_t)second, make_recipe(shape, &seed)};
    }
}

/* Generates a program. The arena must not have `exhausted` set; if there is no memory, the test fails. */
static inline Program *generate(Arena *arena, Shape shape)
{
    Generator generator = {.shape = shape, .arena = arena};
    const size_t passes = (size_t)shape.pipes * shape.stages * shape.microbatches;
    Program *program = generator.program = arena_allocate(arena, sizeof *program);
    *program = (Program){.schedule = arena_format(arena, "generated"),
                         .source = arena_format(arena, "generated.dps"),
                         .asynchronous = shape.update > 0,
                         .stages = shape.stages,
                         .microbatches = shape.pipes * shape.microbatches,
                         .pipe_count = shape.pipes,
                         .pipes = arena_array(arena, shape.pipes, sizeof(Pipe)),
                         .groups = arena_array(arena, shape.stages, sizeof(Group)),
                         .rank_count = shape.ranks,
                         .ranks = arena_array(arena, shape.ranks, sizeof(RankProgram))};
    generator.passes = arena_array(arena, passes, sizeof *generator.passes);
    generator.places = arena_array(arena, passes, sizeof *generator.places);
    generator.weights = arena_array(arena, (size_t)shape.ranks * shape.pipes * shape.stages, sizeof *generator.weights);
    generator.gathered = arena_array(arena, shape.stages, sizeof *generator.gathered);
    generator.posted = arena_array(arena, shape.stages, sizeof *generator.posted);
    generator.completed = arena_array(arena, shape.stages, sizeof *generator.completed);
    generator.streams = arena_array(arena, shape.ranks, sizeof *generator.streams);
    for (size_t i = 0; i < passes; i++)
        generator.passes[i].x = generator.passes[i].dy = SLOT_NONE;
    for (uint32_t r = 0; r < shape.ranks; r++) {
        Stream *stream = &generator.streams[r];
        program->ranks[r].chunks = arena_array(arena, (size_t)shape.pipes * shape.stages, sizeof(Chunk));
        stream->sending = arena_array(arena, 2 * passes, sizeof *stream->sending);
        for (int class = 0; class < SLOT_CLASSES; class ++)
            stream->pools[class].free = arena_array(arena, 2 * passes, sizeof(uint16_t));
        stream->line = 1;
    }
    place_stages(&generator);
    make_recipes(&generator);
    for (uint32_t idle = 0, rank = 0; idle < 8 * shape.ranks; idle++) {
        rank = shape.preference == PREFER_ANY ? random_below(&generator.shape.seed, shape.ranks)
                                              : (rank + 1) % shape.ranks;
        if (step_rank(&generator, rank))
            idle = 0;
    }
    for (uint32_t r = 0; r < shape.ranks; r++) /* runs the passes that the random picks have left */
        if (step_rank(&generator, r))
            r = UINT32_MAX;
    finish(&generator);
    return program;
}

/* A random shape of any kind, small enough for many tests. */
static inline Shape random_shape(uint64_t *seed)
{
    const uint32_t ranks = 1 + random_below(seed, 6);
    Shape shape = {.ranks = ranks,
                   .stages = ranks + random_below(seed, 6),
                   .microbatches = 1 + random_below(seed, 6),
                   .placement = (Placement)random_below(seed, 3),
                   .preference = (Preference)random_below(seed, 3),
                   .replicas = 1 + random_below(seed, 4),
                   .split = random_below(seed, 3) * 50,
                   .overlap = random_below(seed, 3) * 50,
                   .seed = random_next(seed)};
    shape.pipes = 1 + random_below(seed, shape.ranks < 2                                      ? 1
                                         : shape.ranks % 2 && shape.placement != PLACE_RANDOM ? 1
                                                                                              : 2);
    if (shape.pipes == 2 && shape.placement == PLACE_RANDOM && shape.ranks > 2)
        shape.pipes += random_below(seed, 2);
    if (random_below(seed, 2)) {
        shape.update = 1 + random_below(seed, 3);
        shape.delayed = random_below(seed, 2);
    }
    shape.after = random_below(seed, 3) * 50;
    return shape;
}

static inline Program *copy_program(Arena *arena, const Program *program)
{
    Program *copy = arena_allocate(arena, sizeof *copy);
    *copy = *program;
    if (program->recipes.common) {
        copy->recipes.common = arena_allocate(arena, sizeof *copy->recipes.common);
        *copy->recipes.common = *program->recipes.common;
    }
    copy->recipes.own = arena_array(arena, program->recipes.count, sizeof *copy->recipes.own);
    if (program->recipes.count)
        memcpy(copy->recipes.own, program->recipes.own, program->recipes.count * sizeof *copy->recipes.own);
    copy->ranks = arena_array(arena, program->rank_count, sizeof *copy->ranks);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        RankProgram *rank = &copy->ranks[r];
        *rank = program->ranks[r];
        /* room for a few more instructions */
        rank->instructions = arena_array(arena, rank->instruction_count + 8, sizeof *rank->instructions);
        memcpy(rank->instructions, program->ranks[r].instructions,
               rank->instruction_count * sizeof *rank->instructions);
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            if (rank->instructions[i].second) {
                Instruction *second = arena_allocate(arena, sizeof *second);
                *second = *rank->instructions[i].second;
                rank->instructions[i].second = second;
            }
    }
    return copy;
}
