#pragma once

/* The smallest host of the executor, in plain C: it trains a chain of sparse linear layers, y[i] = w[i] x[i+1], one per
   stage. A rank is a thread. */

#include "runtime/executor/executor.h"
#include "runtime/transport/transport.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 4, STEPS = 20, RANKS = 4, MICROBATCHES = 8, STAGES_MAX = 16, BYTES = WIDTH * sizeof(double) };

typedef struct Layer {
    double weight[WIDTH], gradient[WIDTH];
} Layer;

/* The host of one rank. */
typedef struct Toy {
    LoadedProgram loaded;
    World *world;
    Layer layers[STAGES_MAX]; /* [the rank's chunks] */
    double loss, losses[STEPS];
    RankCommunicators communicators;
    Executor *executor;
} Toy;

static double input(const PassSlots *slots, int i)
{
    return slots->x ? ((double *)slots->x)[(i + 1) % WIDTH] : sin(1.0 + slots->number + 3.0 * i);
}

static void forward(Toy *toy, const PassSlots *slots)
{
    double *y = slots->y ? slots->y : slots->context; /* the last stage saves dloss/dy in its context */
    for (int i = 0; i < WIDTH; i++)
        y[i] = toy->layers[slots->chunk].weight[i] * input(slots, i);
    for (int i = 0; i < WIDTH; i++)
        if (!slots->y) {
            y[i] -= cos(2.0 * slots->number + i);
            toy->loss += 0.5 * y[i] * y[i] / MICROBATCHES;
            ((double *)slots->stash)[i] = y[i];
        }
}

static void backward_input(Toy *toy, const PassSlots *slots)
{
    const double *dy = slots->dy ? slots->dy : slots->context;
    for (int i = 0; i < WIDTH; i++)
        if (slots->dx)
            ((double *)slots->dx)[(i + 1) % WIDTH] = toy->layers[slots->chunk].weight[i] * dy[i];
}

static void backward_weight(Toy *toy, const PassSlots *slots)
{
    const double *dy = slots->dy ? slots->dy : slots->stash;
    for (int i = 0; i < WIDTH; i++)
        toy->layers[slots->chunk].gradient[i] += dy[i] * input(slots, i);
}

static Status run_pass(void *host, StagePass pass, const PassSlots *slots, Error *error)
{
    (void)error;
    if (pass == STAGE_FORWARD)
        forward(host, slots);
    if (pass == STAGE_BACKWARD || pass == STAGE_BACKWARD_INPUT)
        backward_input(host, slots);
    if (pass == STAGE_BACKWARD || pass == STAGE_BACKWARD_WEIGHT)
        backward_weight(host, slots);
    return STATUS_OK;
}

static void *weight_gradient(void *host, uint32_t chunk) { return ((Toy *)host)->layers[chunk].gradient; }

static Status update(void *host, uint32_t chunk, Error *error)
{
    Layer *layer = &((Toy *)host)->layers[chunk];
    (void)error;
    for (int i = 0; i < WIDTH; i++)
        layer->weight[i] -= 0.1 * layer->gradient[i] / MICROBATCHES, layer->gradient[i] = 0;
    return STATUS_OK;
}

static void initialize(Layer *layer, uint32_t stage)
{
    for (int i = 0; i < WIDTH; i++)
        layer->weight[i] = 1 + 0.1 * sin(7.0 * stage + i);
}

static const StageTable toy_stages = {
    .pass = run_pass,
    .weight_gradient = weight_gradient,
    .update = update,
};

static Status train(Toy *toy, Error *error)
{
    const RankProgram *own = &toy->loaded.program->ranks[toy->world->number];
    ChunkPlan plans[STAGES_MAX];
    for (uint32_t c = 0; c < own->chunk_count; c++) {
        initialize(&toy->layers[c], own->chunks[c].stage);
        plans[c] = (ChunkPlan){
            .message = BYTES, .context = BYTES, .stash = BYTES, .weight_gradient = WIDTH, .element = sizeof(double)};
    }
    TRY(executor_connect(toy->world, toy->loaded.program, 1, plans, NULL, &toy->communicators, error));
    const ExecutorConfig config = {
        .loaded = &toy->loaded,
        .rank = toy->world->number,
        .stages = &toy_stages,
        .host = toy,
        .chunks = plans,
        .pipeline = toy->communicators.pipeline,
        .sums = toy->communicators.sums,
    };
    TRY(executor_open(&config, &toy->executor, error));
    TRY(executor_bind(toy->executor, error));
    for (uint64_t step = 1; step <= STEPS; step++, toy->loss = 0) {
        TRY(executor_run(toy->executor, false, step, error));
        toy->losses[step - 1] = toy->loss;
    }
    return STATUS_OK;
}

/* The thread of a rank. */
static void *toy_thread(void *toy)
{
    Error error = {""};
    if (train(toy, &error) != STATUS_OK)
        world_abort(((Toy *)toy)->world, error.text);
    return NULL;
}

/* Frees a rank. Call it when all ranks have finished: until then other ranks may use blocks of this rank's memory. */
static void toy_close(Toy *toy)
{
    executor_close(toy->executor);
    executor_disconnect(&toy->communicators);
    toy->world->run->close(toy->world);
}
