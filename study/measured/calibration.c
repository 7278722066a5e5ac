#include "study/measured/calibration.h"

#include "base/compare.h"
#include "base/counted.h"

#include <math.h>
#include <stdlib.h>

void samples_add(Samples *samples, double value, Arena *arena)
{
    samples->values = arena_extend(arena, samples->values, samples->count, sizeof value);
    samples->values[samples->count++] = value;
}

double samples_typical(const Samples *samples)
{
    if (!samples->count)
        return NAN;
    qsort(samples->values, samples->count, sizeof *samples->values, compare_doubles);
    const size_t cut = samples->count / 10;
    double sum = 0;
    for (size_t i = cut; i < samples->count - cut; i++)
        sum += samples->values[i];
    return sum / (double)(samples->count - 2 * cut);
}

/* Keeps the `fastest` shortest steps of a trace, or all if `fastest` is 0. Step 1 is always removed if there are
   others. */
static void select_steps(Trace *trace, uint32_t fastest, Arena *arena)
{
    uint32_t count, *steps = trace_steps_by_makespan(trace, arena, &count);
    if (fastest && fastest < count)
        count = fastest;
    qsort(steps, count, sizeof *steps, compare_uint32);
    trace_keep_steps(trace, steps, count);
}

/* An F&B whose recipe puts weight gradients off appears in a trace as an F&I and a later W. Turns the F&I into an F&B
   and stores the time of the W in `after` of both halves, so that the times of F&Bs (list_pairs) include all weight
   gradients. Removes the W: it has only a few components, and so is no sample of a W. */
static void join_put_off(const Trace *trace)
{
    for (size_t i = 0; i < trace->count; i++) {
        TraceEvent *weight = &trace->events[i], *backward = weight;
        if (!weight->put_off)
            continue;
        if (weight->kind != ACTION_W) {
            weight->kind = ACTION_B;
            continue;
        }
        while (backward > trace->events && !(backward->put_off && backward->kind == ACTION_B &&
                                             backward->rank == weight->rank && backward->step == weight->step))
            backward--;
        if (backward > trace->events)
            backward[0].after = backward[-1].after = weight->end - weight->start;
        weight->kind = ACTION_KINDS;
    }
}

static void gather_passes(CalibrationInput *input, Arena *arena)
{
    const Trace *trace = &input->trace;
    input->passes = arena_array(arena, trace->stages, sizeof *input->passes);
    for (size_t i = 0; i < trace->count; i++) {
        const TraceEvent *event = &trace->events[i];
        const bool paired = event->overlap || (i > 0 && trace->events[i - 1].overlap);
        if (event->kind < CALIBRATION_KINDS && !paired)
            samples_add(&input->passes[event->stage][event->kind], event->end - event->start, arena);
    }
}

static void pool_passes(Calibration *calibration, CalibrationInput *input)
{
    const CalibrationInput *first = calibration->inputs;
    double here = 0, there = 0;
    for (uint32_t s = 0; s < calibration->stages; s++)
        for (int kind = 0; kind < CALIBRATION_KINDS; kind++) {
            const Samples *samples = &input->passes[s][kind], *other = &first->passes[s][kind];
            here += samples->count && other->count ? samples_typical(samples) : 0;
            there += samples->count && other->count ? samples_typical(other) : 0;
            for (size_t i = 0; i < samples->count; i++)
                samples_add(&calibration->passes[s][kind], samples->values[i], calibration->arena);
        }
    input->relative = there > 0 ? here / there : NAN;
}

double calibration_pass(const Calibration *calibration, uint32_t stage, uint8_t kind)
{
    Samples *samples = calibration->passes[stage];
    if (kind == ACTION_B && !samples[ACTION_B].count)
        return samples_typical(&samples[ACTION_I]) + samples_typical(&samples[ACTION_W]);
    return samples_typical(&samples[kind]);
}

static void split_pass(Calibration *calibration, const TraceEvent *pass, bool missing, double part)
{
    if (!missing)
        return;
    const bool told = pass->half > 0;
    samples_add(&calibration->passes[pass->stage][pass->kind], told ? pass->half : (pass->end - pass->start) * part,
                calibration->arena);
    calibration->paired[pass->stage][pass->kind] = true;
    if (!told)
        calibration->parts[pass->stage][pass->kind] = part;
}

/* Finds the times of passes that ran only inside F&Bs or F&Fs. If the trace has the time of each half, uses that. Else
   divides the time of the pair as if a B took twice as long as an F, and an I as long as an F. */
static void split_pairs(Calibration *calibration)
{
    bool(*missing)[CALIBRATION_KINDS] = arena_array(calibration->arena, calibration->stages, sizeof *missing);
    for (uint32_t s = 0; s < calibration->stages; s++)
        for (uint8_t kind = 0; kind < CALIBRATION_KINDS; kind++)
            missing[s][kind] = isnan(calibration_pass(calibration, s, kind));
    for (int t = 0; t < calibration->count; t++) {
        const Trace *trace = &calibration->inputs[t].trace;
        for (size_t i = 0; calibration->inputs[t].is_of_model && i + 1 < trace->count; i++) {
            const TraceEvent *forward = &trace->events[i], *backward = forward + 1;
            const double part = backward->kind == ACTION_B ? 1.0 / 3 : 0.5;
            if (!forward->overlap)
                continue;
            split_pass(calibration, forward, missing[forward->stage][ACTION_F], part);
            split_pass(calibration, backward, missing[backward->stage][backward->kind], 1 - part);
        }
    }
}

/* The F&Bs of one kind: the F of stage `forward` with the B or I of stage `backward`. */
typedef struct Pair {
    uint32_t forward, backward;
    uint8_t kind;
    double time;     /* after list_pairs: time of one F&B; after gather_pairs: typical time of all F&Bs of the kind */
    double parts[2]; /* typical times of the F and of the B or I as single passes */
    size_t count;
} Pair;

static int compare_pairs(const void *left, const void *right)
{
    const Pair *a = left, *b = right;
    COMPARE(a->forward, b->forward);
    COMPARE(a->backward, b->backward);
    COMPARE(a->kind, b->kind);
    COMPARE(a->time, b->time);
    return 0;
}

/* Lists all F&Bs of the traces whose passes count (is_of_model), and returns their number. */
static size_t list_pairs(const Calibration *calibration, Pair **listed)
{
    size_t most = 0, count = 0;
    for (int t = 0; t < calibration->count; t++)
        most += calibration->inputs[t].trace.count;
    Pair *pairs = arena_array(calibration->arena, most, sizeof *pairs);
    for (int t = 0; t < calibration->count; t++) {
        const Trace *trace = &calibration->inputs[t].trace;
        for (size_t i = 0; calibration->inputs[t].is_of_model && i + 1 < trace->count; i++) {
            const TraceEvent *forward = &trace->events[i], *backward = forward + 1;
            if (forward->overlap && backward->kind != ACTION_F) /* an F&F is no F&B */
                pairs[count++] = (Pair){forward->stage, backward->stage,
                                        backward->kind, forward->end - forward->start + forward->after,
                                        {0, 0},         1};
        }
    }
    *listed = pairs;
    return count;
}

/* Lists each kind of F&B once, with its typical time, and returns the number of kinds. */
static size_t gather_pairs(const Calibration *calibration, Pair **gathered)
{
    Pair *pairs;
    const size_t count = list_pairs(calibration, &pairs);
    size_t kinds = 0;
    qsort(pairs, count, sizeof *pairs, compare_pairs);
    for (size_t i = 0, next; i < count; i = next) {
        Samples times = {0};
        for (next = i; next < count && pairs[next].forward == pairs[i].forward &&
                       pairs[next].backward == pairs[i].backward && pairs[next].kind == pairs[i].kind;
             next++)
            samples_add(&times, pairs[next].time, calibration->arena);
        Pair pair = pairs[i];
        pair.time = samples_typical(&times);
        pair.count = times.count;
        pair.parts[0] = calibration_pass(calibration, pair.forward, ACTION_F);
        pair.parts[1] = calibration_pass(calibration, pair.backward, pair.kind);
        pairs[kinds++] = pair;
    }
    *gathered = pairs;
    return kinds;
}

/* Fits a share to each stage by least squares. The time of an F&B is to be about (time of its F * share of the F's
   stage + time of its backward * share of the backward's stage), where the backward is a B or I. A stage gets the mean
   share if F&Bs have passes of it but do not determine its share, and NAN if no F&B has a pass of it. */
static void fit_shares(Calibration *calibration)
{
    enum { SWEEPS = 200 };
    static const double hold = 1e-6;
    const uint32_t stages = calibration->stages;
    Pair *pairs;
    const size_t count = gather_pairs(calibration, &pairs);
    double all = 0, turn = 0;
    for (size_t i = 0; i < count; i++) {
        all += pairs[i].time * (double)pairs[i].count;
        turn += (pairs[i].parts[0] + pairs[i].parts[1]) * (double)pairs[i].count;
    }
    const double mean = turn > 0 ? all / turn : 1;
    for (uint32_t s = 0; s < stages; s++)
        calibration->shares[s] = NAN;
    for (size_t i = 0; i < count; i++) {
        calibration->shares[pairs[i].forward] = calibration->shares[pairs[i].backward] = mean;
        calibration->pairs[pairs[i].forward] += pairs[i].count;
        calibration->pairs[pairs[i].backward] += pairs[i].backward != pairs[i].forward ? pairs[i].count : 0;
    }
    for (int sweep = 0; sweep < SWEEPS && turn > 0; sweep++)
        for (uint32_t s = 0; s < stages; s++) {
            double above = 0, below = 0;
            for (size_t i = 0; i < count; i++) {
                const Pair *pair = &pairs[i];
                const double own =
                    (pair->forward == s ? pair->parts[0] : 0) + (pair->backward == s ? pair->parts[1] : 0);
                const double other = (pair->forward == s ? 0 : pair->parts[0] * calibration->shares[pair->forward]) +
                                     (pair->backward == s ? 0 : pair->parts[1] * calibration->shares[pair->backward]);
                above += own * (pair->time - other) * (double)pair->count;
                below += own * own * (double)pair->count;
            }
            if (below > 0)
                calibration->shares[s] = (above + hold * below * mean) / (below * (1 + hold));
        }
}

/* Samples the times of messages. The time of a message is from the end of the pass that computed it to the end of the
   receiver's wait. If the receiver began to wait after the pass had ended, the message gives no sample. */
static void gather_messages(CalibrationInput *input, Arena *arena)
{
    const Trace *trace = &input->trace;
    for (uint32_t s = 0; s < trace->step_count; s++) {
        const TraceIndex index = trace_index(trace, trace->steps[s], arena);
        const TraceStep step = trace_step_events(trace, trace->steps[s]);
        for (const TraceEvent *wait = step.first; wait < step.end; wait++) {
            if (wait->kind < CALIBRATION_KINDS)
                continue;
            const TraceEvent *made = trace_needed(&index, wait);
            if (made && wait->start <= made->end && wait->end >= made->end)
                samples_add(&input->messages, wait->end - made->end, arena);
        }
    }
}

static bool of_one_model(const Trace *trace, const Trace *other)
{
    return trace->message_bytes <= 0 || other->message_bytes <= 0 || trace->message_bytes == other->message_bytes;
}

/* Selects steps of an input, whose trace has been read, and samples its messages. STATUS_BAD_INPUT: its passes count
   (is_of_model), but its model is cut into another number of stages than in the first trace. */
static Status take_input(Calibration *calibration, CalibrationInput *input, uint32_t fastest, Error *error)
{
    const Trace *first = &calibration->inputs[0].trace;
    select_steps(&input->trace, fastest, calibration->arena);
    join_put_off(&input->trace);
    gather_messages(input, calibration->arena);
    input->is_of_model = of_one_model(&input->trace, first);
    if (input->is_of_model && input->trace.stages != first->stages)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s cuts the model into %s, %s into %s: calibrate each number of stages by itself",
                         first->path, counted(first->stages, "stage").text, input->trace.path,
                         counted(input->trace.stages, "stage").text);
    return STATUS_OK;
}

static Status gather(Calibration *calibration, Error *error)
{
    Arena *arena = calibration->arena;
    const uint32_t stages = calibration->stages = calibration->inputs[0].trace.stages;
    calibration->passes = arena_array(arena, stages, sizeof *calibration->passes);
    calibration->parts = arena_array(arena, stages, sizeof *calibration->parts);
    calibration->paired = arena_array(arena, stages, sizeof *calibration->paired);
    calibration->shares = arena_array(arena, stages, sizeof *calibration->shares);
    calibration->pairs = arena_array(arena, stages, sizeof *calibration->pairs);
    for (int t = 0; t < calibration->count; t++)
        if (calibration->inputs[t].is_of_model) {
            gather_passes(&calibration->inputs[t], arena);
            pool_passes(calibration, &calibration->inputs[t]);
        }
    split_pairs(calibration);
    fit_shares(calibration);
    for (uint32_t s = 0; s < stages; s++)
        if (isnan(calibration_pass(calibration, s, ACTION_F)))
            return error_set(
                error, STATUS_BAD_INPUT, "%s: no F of stage %u in it: %s", calibration->inputs[0].trace.path, s,
                calibration->inputs[0].trace.mapped ? "is there a trace of each rank, and does the map match each F?"
                                                    : "is the trace complete?");
    return STATUS_OK;
}

static Calibration of_inputs(int count, Arena *arena)
{
    return (Calibration){
        .inputs = arena_array(arena, (size_t)count, sizeof(CalibrationInput)), .count = count, .arena = arena};
}

Status calibration_read(int count, char *const *paths, uint32_t fastest, Arena *arena, Calibration *calibration,
                        Error *error)
{
    *calibration = of_inputs(count, arena);
    for (int t = 0; t < count; t++) {
        TRY(trace_read(paths[t], arena, &calibration->inputs[t].trace, error));
        TRY(take_input(calibration, &calibration->inputs[t], fastest, error));
    }
    return gather(calibration, error);
}

Status calibration_of(const Trace *trace, uint32_t fastest, Arena *arena, Calibration *calibration, Error *error)
{
    *calibration = of_inputs(1, arena);
    calibration->inputs->trace = *trace;
    TRY(take_input(calibration, calibration->inputs, fastest, error));
    return gather(calibration, error);
}
