#pragma once

/* A stage or component with its own buffers, for tests of what stages compute. */

#include "runtime/model/component.h"
#include "runtime/model/random.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                 \
    do {                                                         \
        Error ok_error = {""};                                   \
        Error *error = &ok_error;                                \
        if ((call) != STATUS_OK)                                 \
            fail_msg("%s:%d: %s", #call, __LINE__, error->text); \
    } while (0)

static inline void *elements(Device *device, size_t count)
{
    void *memory = NULL;
    OK(device->run->allocate(device, count * device->run->size[COMPUTE_TYPE], &memory, error));
    return memory;
}

static inline void poison(Device *device, void *memory, size_t count)
{
    if (memory)
        OK(device->run->fill(device, COMPUTE_TYPE, count, (double)NAN, memory, error));
}

static inline void randomize(Device *device, void *memory, size_t count, uint64_t key, double deviation)
{
    for (size_t i = 0; memory && i < count; i++) {
        const float value = (float)deviation * random_normal(key, i);
        OK(device->run->load_floats(device, COMPUTE_TYPE, 1, &value,
                                    (char *)memory + i * device->run->size[COMPUTE_TYPE], error));
    }
}

static inline ModelConfig config_of(const char *model, const char *const *assignments, uint32_t stages)
{
    ModelConfig config;
    OK(model_config_load(model, &config, error));
    for (; *assignments; assignments++)
        OK(model_config_set(&config, *assignments, error));
    OK(model_config_check(&config, stages, error));
    return config;
}

static inline StageWeights weights_of(Device *device, Stage *stage)
{
    const size_t count = stage_sizes(stage)->parameters;
    void *parameters = elements(device, count);
    const StageWeights weights = {parameters, parameters, elements(device, count), elements(device, count),
                                  elements(device, count)};
    poison(device, weights.parameters, count);
    OK(stage_initialize(stage, &weights, error));
    return weights;
}

static inline void free_weights(Device *device, StageWeights weights)
{
    device->run->deallocate(device, weights.parameters);
    device->run->deallocate(device, weights.gradients);
    device->run->deallocate(device, weights.moment1);
    device->run->deallocate(device, weights.moment2);
}

/* The buffers of a stage for one microbatch. */
typedef struct Slots {
    PassBuffers buffers;
    void *x, *y, *dx, *dy, *inputs, *targets;
    float *outputs;
    double loss;
} Slots;

static inline void poison_slots(Device *device, const StageSizes *sizes, Slots *slots)
{
    poison(device, slots->y, sizes->message);
    poison(device, slots->dx, sizes->message);
    poison(device, slots->buffers.context, sizes->context);
    poison(device, slots->buffers.stash, sizes->stash);
    poison(device, slots->buffers.gradient, sizes->gradient);
    poison(device, slots->buffers.workspace, sizes->workspace);
    slots->loss = (double)NAN;
}

/* Allocates the memory of `slots`, which free_slots frees: x and dy are random; inputs, targets and outputs are 0; the
   rest is NaN. A first stage has no x and no dx, a last one no y and no dy: these are NULL. `slots` must not move
   afterwards, because its buffers point to its loss. */
static inline void make_slots(Device *device, const StageSizes *sizes, bool first, bool last, StageWeights weights,
                              Slots *slots)
{
    *slots = (Slots){
        .x = first ? NULL : elements(device, sizes->message),
        .y = last ? NULL : elements(device, sizes->message),
        .dx = first ? NULL : elements(device, sizes->message),
        .dy = last ? NULL : elements(device, sizes->message),
        .inputs = sizes->inputs ? calloc(1, sizes->inputs) : NULL,
        .targets = sizes->targets ? calloc(1, sizes->targets) : NULL,
        .outputs = sizes->outputs ? calloc(sizes->outputs, sizeof(float)) : NULL,
    };
    slots->buffers = (PassBuffers){
        .parameters = weights.parameters,
        .parameter_gradients = weights.gradients,
        .expert_gradients = weights.gradients,
        .x = slots->x,
        .y = slots->y,
        .dx = slots->dx,
        .dy = slots->dy,
        .context = elements(device, sizes->context),
        .stash = elements(device, sizes->stash),
        .gradient = elements(device, sizes->gradient),
        .workspace = elements(device, sizes->workspace),
        .inputs = slots->inputs,
        .targets = slots->targets,
        .outputs = slots->outputs,
        .loss = last ? &slots->loss : NULL,
    };
    randomize(device, slots->x, sizes->message, 1, 1);
    randomize(device, slots->dy, sizes->message, 2, 1);
    poison_slots(device, sizes, slots);
}

static inline void free_slots(Device *device, Slots *slots)
{
    device->run->deallocate(device, slots->x);
    device->run->deallocate(device, slots->y);
    device->run->deallocate(device, slots->dx);
    device->run->deallocate(device, slots->dy);
    device->run->deallocate(device, slots->buffers.context);
    device->run->deallocate(device, slots->buffers.stash);
    device->run->deallocate(device, slots->buffers.gradient);
    device->run->deallocate(device, slots->buffers.workspace);
    free(slots->inputs);
    free(slots->targets);
    free(slots->outputs);
}
