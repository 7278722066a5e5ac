#pragma once

/* The state of the generator, and the streams of instructions that it writes: slots, messages, and waits for them. */

#include "program/program.h"
#include "tests/program/random.h"

typedef enum Placement { PLACE_LOOP, PLACE_V, PLACE_RANDOM } Placement;
typedef enum Preference { PREFER_FORWARD, PREFER_BACKWARD, PREFER_ANY } Preference;

typedef struct Shape {
    uint32_t ranks, stages, pipes, microbatches; /* each rank must get a stage or a copy; microbatches: per pipe */
    /* LOOP: stage % ranks; V: down and up; in odd pipes both are mirrored. RANDOM: any rank */
    Placement placement;
    /* placement RANDOM: the largest number of copies of a stage in a pipe; 0 means 1 */
    uint32_t replicas;
    Preference preference;
    uint32_t split;   /* percentage of backwards that are split into I and W */
    uint32_t overlap; /* percentage of the pairs of passes that may form an F&B and do */
    uint32_t after;   /* percentage of the recipes that put weight gradients off */
    /* > 0: the program is asynchronous, with a U after so many backwards of a stage, all copies together; 0:
       synchronous */
    uint32_t update;
    /* asynchronous programs: true: microbatch m uses version max(m / update - 1, 0); false: the newest one */
    bool delayed;
    uint64_t seed;
} Shape;

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
    bool *posted; /* [stage]: the sum of its gradients is posted */
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
