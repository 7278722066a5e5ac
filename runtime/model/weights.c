/* A stage's weights outside the passes: initialisation, tallies, sums of squares, update. */

#include "base/clock.h"
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
    const ExpertGroup *group = component->config.expert_group;
    const size_t of_all = component->of_experts[index] ? component->of_experts[index] : parameter->elements;
    const size_t first = group && component->of_experts[index] ? (size_t)group->self * parameter->elements : 0;
    float piece[PIECE];
    for (size_t done = 0; done < parameter->elements;) {
        const size_t left = parameter->elements - done, count = left < PIECE ? left : PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = (float)parameter->deviation * random_normal(key, (first + done + i) % of_all);
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
    TRY(initialize_all(stage, COMPUTE_TYPE, weights->parameters, error));
    return weights->master_weights == weights->parameters
               ? STATUS_OK
               : initialize_all(stage, MASTER_TYPE, weights->master_weights, error);
}

typedef struct Loads {
    double largest, mean;
} Loads;

static Loads loads_of(const float *counts, size_t experts)
{
    Loads loads = {0};
    for (size_t e = 0; e < experts; e++) {
        loads.mean += (double)counts[e] / (double)experts;
        loads.largest = (double)counts[e] > loads.largest ? (double)counts[e] : loads.largest;
    }
    return loads;
}

/* Adds one tally of the gradient buffer to `tallies`, and sets it to 0 in the buffer. A TALLY_LOADS is also copied to
   the first moment of its bias, which AdamW does not use; balance reads it there. */
static Status take_tally(Stage *stage, Tally tally, size_t count, char *gradient, char *moment, StageTallies *tallies,
                         Error *error)
{
    const DeviceTable *run = stage->device->run;
    TRY(run->store_floats(stage->device, MASTER_TYPE, count, gradient, stage->counts, error));
    if (tally == TALLY_SUM) {
        tallies->balance_loss += (double)stage->counts[0];
    } else {
        const Loads loads = loads_of(stage->counts, count);
        const double load = loads.mean > 0 ? loads.largest / loads.mean : 1;
        tallies->loads += load;
        tallies->worst_load = load > tallies->worst_load ? load : tallies->worst_load;
        tallies->layers++;
        TRY(run->copy(stage->device, count * run->size[MASTER_TYPE], gradient, moment, error));
    }
    return run->fill(stage->device, MASTER_TYPE, count, 0, gradient, error);
}

Status stage_take_tallies(Stage *stage, const StageWeights *weights, StageTallies *tallies, Error *error)
{
    const size_t size = stage->device->run->size[MASTER_TYPE];
    for (size_t i = 0; stage->counts && i < stage->part_count; i++) {
        const Component *component = &stage->parts[i].component;
        for (size_t p = 0; p < component->parameter_count; p++) {
            const size_t offset = (stage->parts[i].parameters + component_offset(component, p)) * size;
            if (component->tallies[p])
                TRY(take_tally(stage, component->tallies[p], component->parameters[p].elements,
                               (char *)weights->gradients + offset, (char *)weights->moment1 + offset, tallies, error));
        }
    }
    return STATUS_OK;
}

/* bias += rate * sign(mean load - load) (Wang et al., 2024, arXiv 2408.15664, algorithm 1). */
static Status balance(Stage *stage, size_t experts, const char *loads, char *master, char *elements, Error *error)
{
    const DeviceTable *run = stage->device->run;
    float *counts = stage->counts, *bias = counts + experts;
    TRY(run->store_floats(stage->device, MASTER_TYPE, experts, loads, counts, error));
    TRY(run->store_floats(stage->device, MASTER_TYPE, experts, master, bias, error));
    const double mean = loads_of(counts, experts).mean;
    for (size_t e = 0; e < experts; e++) {
        const double less = mean - (double)counts[e];
        bias[e] += (float)(stage->config.bias_rate * ((less > 0) - (less < 0)));
    }
    TRY(run->load_floats(stage->device, MASTER_TYPE, experts, bias, master, error));
    return elements ? run->load_floats(stage->device, COMPUTE_TYPE, experts, bias, elements, error) : STATUS_OK;
}

/* Sums over the whole buffer: the padding after each parameter is always zero. */
Status stage_gradient_norm(Stage *stage, const StageWeights *weights, double *sum_of_squares, Error *error)
{
    return stage->device->run->sum_of_squares(stage->device, stage->sizes.parameters, weights->gradients,
                                              sum_of_squares, error);
}

/* Adds to *sum the squares of the values of experts first .. first + count - 1 in a segment, expert by expert. `cell`:
   device memory for one double. */
static Status add_experts(Stage *stage, const StageSegment *segment, const char *values, size_t first, size_t count,
                          double *cell, double *sum, Error *error)
{
    const DeviceTable *run = stage->device->run;
    for (size_t e = first; e < first + count; e++) {
        double one;
        TRY(run->sum_of_squares(stage->device, segment->expert,
                                values + (segment->offset + e * segment->expert) * run->size[MASTER_TYPE], cell,
                                error));
        TRY(run->download(stage->device, sizeof one, cell, &one, error));
        *sum += one;
    }
    return STATUS_OK;
}

/* Writes to `cell`, in device memory, the sum of squares of the experts of member `member` of `members`, which this
   stage holds. If the stage holds only the experts of one member, `members` is 1. */
static Status squares_of_member(Stage *stage, const void *values, uint32_t members, uint32_t member, double *cell,
                                Error *error)
{
    double sum = 0;
    for (size_t i = 0; i < stage_segments(stage); i++) {
        const StageSegment segment = stage_segment(stage, i);
        const size_t each = segment.expert ? segment.elements / segment.expert / members : 0;
        TRY(add_experts(stage, &segment, values, member * each, each, cell, &sum, error));
    }
    return stage->device->run->upload(stage->device, sizeof sum, &sum, cell, error);
}

Status stage_sum_squares(Stage *stage, const void *values, uint32_t members, double *sums, Error *error)
{
    const DeviceTable *run = stage->device->run;
    const ExpertGroup *group = stage->config.expert_group;
    TRY(run->sum_of_squares(stage->device, stage->sizes.parameters - stage->sizes.experts, values, sums, error));
    for (uint32_t m = 0; stage->sizes.experts && m < members; m++) {
        const double none = 0;
        if (!group)
            TRY(squares_of_member(stage, values, members, m, &sums[1 + m], error));
        else if (m == (uint32_t)group->self)
            TRY(squares_of_member(stage, values, 1, 0, &sums[1 + m], error));
        else
            TRY(run->upload(stage->device, sizeof none, &none, &sums[1 + m], error));
    }
    return STATUS_OK;
}

/* --- segments --- */

size_t stage_segments(const Stage *stage)
{
    size_t count = 0;
    for (size_t i = 0; i < stage->part_count; i++)
        count += stage->parts[i].component.parameter_count;
    return count;
}

StageSegment stage_segment(const Stage *stage, size_t index)
{
    const Part *part = stage->parts;
    for (; index >= part->component.parameter_count; part++)
        index -= part->component.parameter_count;
    const Component *component = &part->component;
    const size_t elements = component->parameters[index].elements, of_all = component->of_experts[index];
    return (StageSegment){
        .offset = part->parameters + component_offset(component, index),
        .elements = of_all ? elements : component_round(elements),
        .expert = of_all ? of_all / component->config.experts : 0,
        .of_all = of_all,
        .saved = component_round(of_all ? of_all : elements),
    };
}

/* --- updates --- */

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
            const size_t bytes = offset * run->size[MASTER_TYPE];
            char *elements = weights->parameters == weights->master_weights ? NULL : weights->parameters;
            elements = elements ? elements + offset * run->size[COMPUTE_TYPE] : NULL;
            char *const master = (char *)weights->master_weights + bytes, *const moment1 =
                                                                              (char *)weights->moment1 + bytes;
            const size_t count = component->parameters[p].elements;
            const Tally tally = component->tallies[p];
            if (tally == TALLY_LOADS)
                TRY(balance(stage, count, moment1, master, elements, error));
            if (!tally)
                TRY(run->adamw(stage->device, &settings, count, master, (char *)weights->gradients + bytes, moment1,
                               (char *)weights->moment2 + bytes, elements, error));
        }
        if (stage->times)
            stage_note_time(stage, i, PART_U, true, begun);
    }
    return STATUS_OK;
}
