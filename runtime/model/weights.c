/* What happens to a stage's weights outside the passes: their start, the norm of their gradient, their update. */

#include "runtime/base/clock.h"
#include "runtime/model/random.h"
#include "runtime/model/stage.h"

static Status initialize(const Component *component, size_t index, NumberKind kind, char *destination, Error *error)
{
    enum { PIECE = 4096 };
    const DeviceTable *run = component->device->run;
    const Parameter *parameter = &component->parameters[index];
    if (parameter->deviation == 0)
        return run->fill(component->device, kind, parameter->elements, parameter->constant, destination, error);
    const uint64_t key = random_key(random_key(component->config.seed, component->place), index);
    float piece[PIECE];
    for (size_t done = 0; done < parameter->elements;) {
        const size_t left = parameter->elements - done, count = left < PIECE ? left : PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = (float)parameter->deviation * random_normal(key, done + i);
        TRY(run->load_floats(component->device, kind, count, piece, destination + done * run->size[kind], error));
        done += count;
    }
    return STATUS_OK;
}

static Status initialize_all(Stage *stage, NumberKind kind, char *destination, Error *error)
{
    const DeviceTable *run = stage->device->run;
    TRY(run->fill(stage->device, kind, stage->sizes.parameters, 0, destination, error));
    for (size_t i = 0; i < stage->part_count; i++) {
        const Part *part = &stage->parts[i];
        for (size_t p = 0; p < part->component.parameter_count; p++) {
            const size_t offset = part->parameters + component_offset(&part->component, p);
            TRY(initialize(&part->component, p, kind, destination + offset * run->size[kind], error));
        }
    }
    return STATUS_OK;
}

Status stage_initialize(Stage *stage, const StageWeights *weights, Error *error)
{
    TRY(initialize_all(stage, ELEMENTS, weights->parameters, error));
    return weights->masters == weights->parameters ? STATUS_OK
                                                   : initialize_all(stage, MASTERS, weights->masters, error);
}

/* The rest of a line behind a parameter is zero and stays so: it adds nothing here. */
Status stage_gradient_norm(Stage *stage, const StageWeights *weights, double *sum_of_squares, Error *error)
{
    return stage->device->run->sum_of_squares(stage->device, stage->sizes.parameters, weights->gradients,
                                              sum_of_squares, error);
}

Status stage_update(Stage *stage, const StageWeights *weights, uint64_t step, double clip, Error *error)
{
    const ModelConfig *config = &stage->config;
    const DeviceTable *run = stage->device->run;
    const double warm = config->warmup_steps > 0 ? (double)step / config->warmup_steps : 1;
    AdamW settings = {
        .rate = config->learning_rate * (warm < 1 ? warm : 1),
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .epsilon = config->epsilon,
        .clip = clip,
        .step = step,
    };
    for (size_t i = 0; i < stage->part_count; i++) {
        const Component *component = &stage->parts[i].component;
        const int64_t begun = stage->times ? clock_nanoseconds() : 0;
        for (size_t p = 0; p < component->parameter_count; p++) {
            const size_t offset = stage->parts[i].parameters + component_offset(component, p);
            settings.decay = component->parameters[p].is_matrix ? config->weight_decay : 0;
            const size_t bytes = offset * run->size[MASTERS];
            char *const elements = weights->parameters == weights->masters ? NULL : weights->parameters;
            TRY(run->adamw(stage->device, &settings, component->parameters[p].elements,
                           (char *)weights->masters + bytes, (char *)weights->gradients + bytes,
                           (char *)weights->moment1 + bytes, (char *)weights->moment2 + bytes,
                           elements ? elements + offset * run->size[ELEMENTS] : NULL, error));
        }
        if (stage->times)
            stage_note_time(stage, i, PART_U, begun);
    }
    return STATUS_OK;
}
