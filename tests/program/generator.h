#ifndef TESTS_PROGRAM_GENERATOR_H
#define TESTS_PROGRAM_GENERATOR_H

/* Generates well-formed programs of many shapes. A list scheduler repeatedly picks a random rank and a pass that is
   ready there. A message is added to the streams of both ranks at once, so the order of the picks proves that there is
   no deadlock. */

#include "runtime/program/program.h"
#include "tests/program/same.h"

#include <stdlib.h>
#include <string.h>

typedef enum Placement { PLACE_LOOP, PLACE_V, PLACE_RANDOM } Placement;
typedef enum Preference { PREFER_FORWARD, PREFER_BACKWARD, PREFER_ANY } Preference;

typedef struct Shape {
    uint32_t ranks, stages, pipes, microbatches; /* microbatches of each pipe; stages: at least as many as ranks */
    Placement placement;                         /* LOOP: on stage % ranks; V: down and up; both: odd pipes mirrored */
    /* placement RANDOM: the largest number of copies of a stage in a pipe; 0 means 1 */
    uint32_t replicas;
    Preference preference;
    uint32_t split;   /* percentage of backwards that are split into I and W */
    uint32_t overlap; /* percentage of the consecutive passes that could be an F&B and become one */
    /* > 0: the program is asynchronous, with a U after so many backwards of a stage, all copies together; 0:
       synchronous */
    uint32_t update;
    /* asynchronous programs: true: microbatch m uses version max(m / update - 1, 0); false: the newest one */
    bool delayed;
    uint64_t seed;
} Shape;

static inline uint64_t random_next(uint64_t *state)
{
    /* splitmix64 (Steele, Lea, Flood, 2014) */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *state, uint32_t limit) { return (uint32_t)(random_next(state) % limit); }

typedef struct PassState {
    uint16_t x, y, dx, dy, context, stash, gradient; /* slots on the rank of the stage */
    /* the version of the weights that the F of this microbatch has used */
    uint32_t version;
    bool f, i, w, x_in_flight, dy_in_flight;
} PassState;

/* The weights of a copy of a stage: which version each of its slots holds. */
typedef struct WeightState {
    uint16_t *slots;
    uint32_t *versions, count;
    uint32_t newest;
} WeightState;

typedef struct SlotPool {
    uint16_t *free;
    uint32_t free_count, count;
} SlotPool;

typedef struct Stream {
    Instruction *instructions;
    uint32_t count, capacity, held, peak, line;
    SlotPool pools[SLOT_CLASSES];
    uint16_t *sending;
    uint32_t sending_count;
} Stream;

typedef struct Generator {
    Shape shape;
    Arena *arena;
    Program *program;
    PassState *passes;    /* [pipe][stage][microbatch] */
    Home *places;         /* [pipe][stage][microbatch] */
    WeightState *weights; /* [rank][chunk] */
    /* [stage]: the number of backwards since the last U; the number of backwards so far */
    uint32_t *gathered, *completed;
    bool *posted; /* [stage]: its sum is posted */
    Stream *streams;
} Generator;

typedef struct Pass {
    uint32_t pipe, stage, microbatch;
} Pass;

static inline PassState *pass_state(const Generator *generator, Pass pass)
{
    const Shape *shape = &generator->shape;
    return &generator->passes[((size_t)pass.pipe * shape->stages + pass.stage) * shape->microbatches + pass.microbatch];
}

static inline Home place_of(const Generator *generator, Pass pass)
{
    const Shape *shape = &generator->shape;
    return generator->places[((size_t)pass.pipe * shape->stages + pass.stage) * shape->microbatches + pass.microbatch];
}

static inline Instruction *emit(Generator *generator, uint32_t rank, Opcode opcode)
{
    Stream *stream = &generator->streams[rank];
    if (stream->count == stream->capacity) {
        const uint32_t capacity = stream->capacity ? 2 * stream->capacity : 64;
        stream->instructions = arena_grow(generator->arena, stream->instructions, stream->count * sizeof(Instruction),
                                          capacity * sizeof(Instruction));
        stream->capacity = capacity;
    }
    if (random_below(&generator->shape.seed, 4) == 0)
        stream->line = 1 + random_below(&generator->shape.seed, 60);
    Instruction *instruction = &stream->instructions[stream->count++];
    *instruction = instruction_blank(opcode, stream->line);
    return instruction;
}

static inline uint16_t slot_take(Generator *generator, uint32_t rank, SlotClass class)
{
    SlotPool *pool = &generator->streams[rank].pools[class];
    return pool->free_count ? pool->free[--pool->free_count] : (uint16_t)pool->count++;
}

static inline void slot_give(Generator *generator, uint32_t rank, SlotClass class, uint16_t slot)
{
    SlotPool *pool = &generator->streams[rank].pools[class];
    if (slot != SLOT_NONE)
        pool->free[pool->free_count++] = slot;
}

static inline void settle_sends(Generator *generator, uint32_t rank)
{
    Stream *stream = &generator->streams[rank];
    for (uint32_t i = 0; i < stream->sending_count; i++) {
        emit(generator, rank, OP_WAIT)->message = stream->sending[i];
        slot_give(generator, rank, SLOT_MESSAGE, stream->sending[i]);
    }
    stream->sending_count = 0;
}

static inline Instruction *emit_pass(Generator *generator, Opcode opcode, Pass pass)
{
    const Home place = place_of(generator, pass);
    Instruction *instruction = emit(generator, place.rank, opcode);
    instruction->chunk = place.chunk;
    instruction->microbatch = pass.microbatch;
    return instruction;
}

/* Makes the result of pass `from` available to stage `to`: by a message, or in the same slot if both are on one
   rank. */
static inline void hand_over(Generator *generator, Pass from, uint32_t to, bool forward)
{
    const Pass target = {from.pipe, to, from.microbatch};
    const uint16_t sender = place_of(generator, from).rank, receiver = place_of(generator, target).rank;
    const uint16_t slot = forward ? pass_state(generator, from)->y : pass_state(generator, from)->dx;
    uint16_t arrives = slot;
    if (sender != receiver) {
        Instruction *send = emit_pass(generator, forward ? OP_SEND_FORWARD : OP_SEND_BACKWARD, from);
        send->peer = receiver;
        send->message = slot;
        generator->streams[sender].sending[generator->streams[sender].sending_count++] = slot;
        arrives = slot_take(generator, receiver, SLOT_MESSAGE);
        Instruction *receive = emit_pass(generator, forward ? OP_RECEIVE_FORWARD : OP_RECEIVE_BACKWARD, target);
        receive->peer = sender;
        receive->message = arrives;
    }
    PassState *state = pass_state(generator, target);
    *(forward ? &state->x : &state->dy) = arrives;
    *(forward ? &state->x_in_flight : &state->dy_in_flight) = sender != receiver;
}

static inline void await(Generator *generator, Pass pass, bool forward)
{
    PassState *state = pass_state(generator, pass);
    bool *in_flight = forward ? &state->x_in_flight : &state->dy_in_flight;
    if (*in_flight)
        emit(generator, place_of(generator, pass).rank, OP_WAIT)->message = forward ? state->x : state->dy;
    *in_flight = false;
}

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

/* Whether microbatches that use this copy need a version, now or later. */
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

/* Called after each B and each W. In an asynchronous program it may add the U of the stage; the last U uses the
   remaining gradients. In a synchronous one it may post the sum; a sum that is not posted here is posted at the end. */
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

static inline void compute_weight(Generator *generator, Pass pass)
{
    const uint32_t rank = place_of(generator, pass).rank;
    PassState *state = pass_state(generator, pass);
    Instruction *instruction = emit_pass(generator, OP_BACKWARD_WEIGHT, pass);
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

/* Joins the last two passes of a rank to an F&B. */
static inline void join_halves(Generator *generator, uint32_t rank)
{
    Stream *stream = &generator->streams[rank];
    Instruction *forward = &stream->instructions[stream->count - 2];
    forward->opcode = OP_OVERLAP;
    forward->second = arena_allocate(generator->arena, sizeof *forward->second);
    *forward->second = forward[1];
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

/* The lowest ready microbatch of a kind on a rank. The search starts at a random chunk. */
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
        compute_weight(generator, pass);
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
    if (has_backward)
        compute_backward(generator, backward, random_below(seed, 100) < generator->shape.split);
    if (pair)
        join_halves(generator, rank);
    if (has_backward && pass_state(generator, backward)->w)
        gather(generator, backward);
    if (has_forward && forward.stage < last)
        hand_over(generator, forward, forward.stage + 1, true);
    if (has_backward && backward.stage > 0)
        hand_over(generator, backward, backward.stage - 1, false);
    return true;
}

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

/* A random number of copies that leaves ranks for the later pipes. */
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

/* A valid random recipe: components in an order in which each comes after what it needs, communication in comm or in
   compute. */
static inline Recipe random_recipe(uint64_t *seed)
{
    Recipe recipe = {.counts = {0}};
    bool left[RECIPE_COMPONENTS][RECIPE_PASSES] = {{false}};
    uint32_t count = 0;
    for (int c = 0; c < RECIPE_COMPONENTS; c++) {
        const bool named = random_below(seed, 4) > 0;
        for (int pass = 0; pass < RECIPE_PASSES; pass++) {
            left[c][pass] = named && (pass != RECIPE_W || !recipe_communicates[c]);
            count += left[c][pass];
        }
    }
    while (count) {
        const int c = (int)random_below(seed, RECIPE_COMPONENTS), pass = (int)random_below(seed, RECIPE_PASSES);
        bool waits = !left[c][pass] || (pass == RECIPE_W && left[c][RECIPE_B]);
        for (int other = 0; other < RECIPE_COMPONENTS; other++)
            waits = waits || (pass != RECIPE_W && left[other][pass] && (pass == RECIPE_F ? other < c : other > c));
        if (waits)
            continue;
        const int stream = recipe_communicates[c] && random_below(seed, 3) ? RECIPE_COMM : RECIPE_COMPUTE;
        recipe.entries[stream][recipe.counts[stream]++] = (RecipeEntry){(uint8_t)c, (uint8_t)pass};
        left[c][pass] = false;
        count--;
    }
    if (random_below(seed, 2)) {
        recipe.whole = (uint16_t)(2 + random_below(seed, RECIPE_SHARE_MAX - 1));
        recipe.share = (uint16_t)(1 + random_below(seed, recipe.whole - 1u));
    }
    return recipe;
}

/* Adds recipes of one or two random pairs of chunks. */
static inline void add_chunk_recipes(Program *program, uint64_t *seed, Arena *arena)
{
    Recipes *recipes = &program->recipes;
    const uint32_t chunks = program->ranks[0].chunk_count;
    recipes->own = arena_array(arena, 2, sizeof *recipes->own);
    for (int i = 0; i < 2; i++) {
        const uint32_t first = random_below(seed, chunks), second = random_below(seed, chunks);
        if (recipes_find(recipes, first, second) == recipes->count)
            recipes->own[recipes->count++] = (ChunkRecipe){(uint8_t)first, (uint8_t)second, random_recipe(seed)};
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
    for (uint32_t idle = 0, rank = 0; idle < 8 * shape.ranks; idle++) {
        rank = shape.preference == PREFER_ANY ? random_below(&generator.shape.seed, shape.ranks)
                                              : (rank + 1) % shape.ranks;
        if (step_rank(&generator, rank))
            idle = 0;
    }
    for (uint32_t r = 0; r < shape.ranks; r++) /* finishes passes that the random picks have left on some ranks */
        if (step_rank(&generator, r))
            r = UINT32_MAX;
    finish(&generator);
    uint64_t seed = shape.seed;
    if (random_below(&seed, 2)) {
        program->recipes.common = arena_allocate(arena, sizeof *program->recipes.common);
        *program->recipes.common = random_recipe(&seed);
    }
    if (random_below(&seed, 2))
        add_chunk_recipes(program, &seed, arena);
    return program;
}

/* Random shapes of all kinds, small enough for many tests of each. */
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
        /* room for a few more */
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

#endif
