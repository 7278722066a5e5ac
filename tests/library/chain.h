#pragma once

/* A model for the tests that run ranks: a chain of sparse linear layers, y[i] = w[i] x[i+1], one per stage, in double
   precision. Passes read and write the slots that the instruction names. */

#include "tests/library/client.h"

enum { WIDTH = 4, CHUNKS_MAX = 16, RANKS_MAX = 8, STAGES_MAX = 64 };

typedef struct Vector {
    double of[WIDTH];
} Vector;

/* One rank of the model. */
typedef struct Host {
    const dps_program *program;
    uint32_t number, stages, microbatches;
    dps_rank *rank;
    Vector *slots[DPS_SLOT_CLASSES]; /* [class][slot], weights included: at first weights slot c has those of chunk c */
    /* [message slots]: the memory of each slot; ranks that are threads exchange these pointers */
    void **messages;
    Vector gradients[CHUNKS_MAX];
    double loss;
} Host;

static inline Vector initial_weights(uint32_t stage)
{
    Vector weights;
    for (int i = 0; i < WIDTH; i++)
        weights.of[i] = 1 + 0.1 * sin(7.0 * stage + i);
    return weights;
}

static inline void host_open(Host *host, dps *d, const dps_program *program, uint32_t rank,
                             const dps_rank_options *options)
{
    dps_program_info info = {.size = sizeof info};
    dps_rank_info own = {.size = sizeof own};
    assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
    assert_int_equal(dps_get_rank_info(program, rank, &own), DPS_OK);
    *host = (Host){.program = program, .number = rank, .stages = info.stages, .microbatches = info.microbatches};
    assert_int_equal(dps_rank_open(d, program, rank, options, &host->rank), DPS_OK);
    assert_string_equal(dps_rank_error(host->rank), "");
    for (int class = 0; class < DPS_SLOT_CLASSES; class ++)
        host->slots[class] = calloc(own.slots[class] + 1, sizeof(Vector));
    host->messages = calloc(own.slots[DPS_SLOT_MESSAGE] + 1, sizeof *host->messages);
    for (uint32_t i = 0; i < own.slots[DPS_SLOT_MESSAGE]; i++)
        host->messages[i] = &host->slots[DPS_SLOT_MESSAGE][i];
    assert_true(own.chunks <= CHUNKS_MAX);
    for (uint32_t c = 0; c < own.chunks; c++) {
        dps_chunk_info chunk = {.size = sizeof chunk};
        assert_int_equal(dps_get_chunk_info(program, rank, c, &chunk), DPS_OK);
        host->slots[DPS_SLOT_WEIGHTS][c] = initial_weights(chunk.stage);
    }
}

static inline void host_close(Host *host)
{
    dps_rank_free(host->rank);
    for (int class = 0; class < DPS_SLOT_CLASSES; class ++)
        free(host->slots[class]);
    free(host->messages);
}

/* --- passes --- */

static inline Vector *message(const Host *host, int32_t slot) { return slot < 0 ? NULL : host->messages[slot]; }

static inline double input(const Host *host, const dps_instruction *pass, int i)
{
    const Vector *x = message(host, pass->x);
    return x ? x->of[(i + 1) % WIDTH] : sin(1.0 + pass->number + 3.0 * i);
}

/* The last stage saves the gradient of the loss in its context and stash slots, for I and W. */
static inline int chain_forward(void *user, const dps_instruction *pass)
{
    Host *host = user;
    const Vector *w = &host->slots[DPS_SLOT_WEIGHTS][pass->weights];
    Vector made, *y = message(host, pass->y);
    for (int i = 0; i < WIDTH; i++)
        made.of[i] = w->of[i] * input(host, pass, i);
    if (y) {
        *y = made;
        return 0;
    }
    for (int i = 0; i < WIDTH; i++) {
        made.of[i] -= cos(2.0 * pass->number + i);
        host->loss += 0.5 * made.of[i] * made.of[i] / host->microbatches;
    }
    host->slots[DPS_SLOT_CONTEXT][pass->context] = host->slots[DPS_SLOT_STASH][pass->stash] = made;
    return 0;
}

static inline int chain_backward_input(void *user, const dps_instruction *pass)
{
    Host *host = user;
    const Vector *w = &host->slots[DPS_SLOT_WEIGHTS][pass->weights], *dy = message(host, pass->dy);
    Vector *dx = message(host, pass->dx);
    if (!dy)
        dy = &host->slots[DPS_SLOT_CONTEXT][pass->context];
    for (int i = 0; i < WIDTH && dx; i++)
        dx->of[(i + 1) % WIDTH] = w->of[i] * dy->of[i];
    return 0;
}

static inline int chain_backward_weight(void *user, const dps_instruction *pass)
{
    Host *host = user;
    const Vector *dy = message(host, pass->dy);
    if (!dy)
        dy = &host->slots[DPS_SLOT_STASH][pass->stash];
    for (int i = 0; i < WIDTH; i++)
        host->gradients[pass->chunk].of[i] += dy->of[i] * input(host, pass, i);
    return 0;
}

static inline int chain_update(void *user, const dps_instruction *update)
{
    Host *host = user;
    Vector *gradient = &host->gradients[update->chunk], *w = &host->slots[DPS_SLOT_WEIGHTS][update->chunk];
    for (int i = 0; i < WIDTH; i++)
        w->of[i] -= 0.1 * gradient->of[i] / host->microbatches;
    *gradient = (Vector){{0}};
    return 0;
}

/* U of an asynchronous program: an optimizer step from one version of the weights to the next. */
static inline int chain_update_async(void *user, const dps_instruction *update)
{
    Host *host = user;
    Vector *weights = host->slots[DPS_SLOT_WEIGHTS], *gradient = &host->gradients[update->chunk];
    for (int i = 0; i < WIDTH; i++)
        weights[update->next_weights].of[i] = weights[update->weights].of[i] - 0.1 * gradient->of[i] / update->count;
    *gradient = (Vector){{0}};
    return 0;
}

/* Runs a step of the chain without a pipeline, and returns the loss. `weights`: [stages], updated unless the program is
   forward-only. */
static inline double chain_step(Vector *weights, const dps_program_info *info)
{
    const uint32_t stages = info->stages, microbatches = info->microbatches;
    Vector outputs[STAGES_MAX], saved, gradients[STAGES_MAX] = {{{0}}};
    void *messages[STAGES_MAX];
    Host host = {.microbatches = microbatches, .messages = messages};
    host.slots[DPS_SLOT_CONTEXT] = host.slots[DPS_SLOT_STASH] = &saved;
    host.slots[DPS_SLOT_WEIGHTS] = weights;
    assert_true(stages <= STAGES_MAX);
    for (int32_t s = 0; s < (int32_t)stages; s++)
        messages[s] = &outputs[s];
    for (int32_t m = 0; m < (int32_t)microbatches; m++) {
        for (int32_t s = 0; s < (int32_t)stages; s++) {
            const int32_t y = s + 1 == (int32_t)stages ? -1 : s;
            chain_forward(&host, &(dps_instruction){.number = m, .weights = s, .x = s - 1, .y = y});
        }
        Vector dy = saved, dx;
        for (int32_t s = (int32_t)stages; s-- > 0; dy = dx)
            for (int i = 0; i < WIDTH; i++) {
                const dps_instruction pass = {.number = m, .x = s - 1};
                gradients[s].of[i] += dy.of[i] * input(&host, &pass, i);
                dx.of[(i + 1) % WIDTH] = weights[s].of[i] * dy.of[i];
            }
    }
    for (uint32_t s = 0; s < stages && !info->is_forward_only; s++)
        for (int i = 0; i < WIDTH; i++)
            weights[s].of[i] -= 0.1 * gradients[s].of[i] / microbatches;
    return host.loss;
}

static inline void assert_equal_numbers(double one, double other)
{
    if (!(fabs(one - other) <= 1e-13 * (1 + fabs(other))))
        fail_msg("%.17g, and without a pipeline %.17g", one, other);
}

/* Checks that the weights of the rank's chunks equal, up to rounding, `weights`, which a training without a pipeline
   has computed. */
static inline void assert_weights(const Host *host, const Vector *weights)
{
    dps_chunk_info chunk = {.size = sizeof chunk};
    for (uint32_t c = 0; dps_get_chunk_info(host->program, host->number, c, &chunk) == DPS_OK; c++)
        for (int i = 0; i < WIDTH; i++)
            assert_equal_numbers(host->slots[DPS_SLOT_WEIGHTS][c].of[i], weights[chunk.stage].of[i]);
}
