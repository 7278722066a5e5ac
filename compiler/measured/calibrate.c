/* Costs from traces. Of many times that a pass took on one stage the mean counts, without the tenth at either end: a prediction
   adds up times, for which the median of a skewed sample is too short, and a process that was put off for once should not count. */

#include "compiler/measured/calibrate.h"

#include "compiler/measured/trace_read.h"
#include "runtime/base/counted.h"
#include "runtime/base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = ACTION_U + 1 };

typedef struct Samples {
    double *values;
    size_t count, capacity;
} Samples;

/* What one trace says. Times in ms; NAN: it does not say. */
typedef struct Calibration {
    const Trace *trace;
    Arena *arena;
    Samples (*passes)[KINDS]; /* [stages] */
    double *shares;           /* [stages]: what an F&B takes of its halves in turn; NAN: it is in none */
    Samples messages;
} Calibration;

static void add(Samples *samples, double value, Arena *arena)
{
    if (samples->count == samples->capacity) {
        const size_t grown = samples->capacity ? 2 * samples->capacity : 16;
        samples->values = arena_grow(arena, samples->values, samples->count * sizeof value, grown * sizeof value);
        samples->capacity = grown;
    }
    samples->values[samples->count++] = value;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* NAN of none. */
static double typical(const Samples *samples)
{
    if (!samples->count)
        return NAN;
    qsort(samples->values, samples->count, sizeof *samples->values, compare);
    const size_t cut = samples->count / 10;
    double sum = 0;
    for (size_t i = cut; i < samples->count - cut; i++)
        sum += samples->values[i];
    return sum / (double)(samples->count - 2 * cut);
}

static int compare_numbers(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Leaves the steps that count: all but the first of several, and of those the `fastest`; 0: all. */
static void select_steps(Trace *trace, uint32_t fastest, Arena *arena)
{
    uint32_t count, *steps = trace_steps_by_makespan(trace, arena, &count);
    if (fastest && fastest < count)
        count = fastest;
    qsort(steps, count, sizeof *steps, compare_numbers);
    trace_keep_steps(trace, steps, count);
}

static void gather_passes(Calibration *calibration)
{
    const Trace *trace = calibration->trace;
    for (size_t i = 0; i < trace->count; i++) {
        const TraceEvent *event = &trace->events[i];
        const bool paired = event->overlap || (i > 0 && trace->events[i - 1].overlap);
        if (event->kind < KINDS && !paired)
            add(&calibration->passes[event->stage][event->kind], event->end - event->start, calibration->arena);
    }
}

static double pass_time(const Calibration *calibration, uint32_t stage, uint8_t kind)
{
    Samples *samples = calibration->passes[stage];
    if (kind == ACTION_B && !samples[ACTION_B].count)
        return typical(&samples[ACTION_I]) + typical(&samples[ACTION_W]);
    return typical(&samples[kind]);
}

/* A stage whose F or backward only ever ran in an F&B: by the rule of thumb that a backward is two forwards, an I is one. */
static void split_pairs(Calibration *calibration)
{
    const Trace *trace = calibration->trace;
    for (size_t i = 0; i + 1 < trace->count; i++) {
        const TraceEvent *forward = &trace->events[i], *backward = forward + 1;
        if (!forward->overlap)
            continue;
        const double time = forward->end - forward->start, share = backward->kind == ACTION_B ? 1.0 / 3 : 0.5;
        if (isnan(pass_time(calibration, forward->stage, ACTION_F)))
            add(&calibration->passes[forward->stage][ACTION_F], time * share, calibration->arena);
        if (isnan(pass_time(calibration, backward->stage, backward->kind)))
            add(&calibration->passes[backward->stage][backward->kind], time * (1 - share), calibration->arena);
    }
}

/* F&B of one kind: the forward of one stage with the B or I of another. */
typedef struct Pair {
    uint32_t forward, backward;
    uint8_t kind;
    double time;     /* of one, then the typical one */
    double parts[2]; /* what its halves take in turn */
    size_t count;
} Pair;

static int compare_pairs(const void *left, const void *right)
{
    const Pair *a = left, *b = right;
    if (a->forward != b->forward)
        return a->forward < b->forward ? -1 : 1;
    if (a->backward != b->backward)
        return a->backward < b->backward ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->time > b->time) - (a->time < b->time);
}

/* Every kind once. Returns how many there are. */
static size_t gather_pairs(const Calibration *calibration, Pair **gathered)
{
    const Trace *trace = calibration->trace;
    Pair *pairs = arena_array(calibration->arena, trace->count, sizeof *pairs);
    size_t count = 0, kinds = 0;
    for (size_t i = 0; i + 1 < trace->count; i++) {
        const TraceEvent *forward = &trace->events[i], *backward = forward + 1;
        if (forward->overlap)
            pairs[count++] = (Pair){forward->stage, backward->stage, backward->kind, forward->end - forward->start, {0, 0}, 1};
    }
    qsort(pairs, count, sizeof *pairs, compare_pairs);
    for (size_t i = 0, next; i < count; i = next) {
        Samples times = {0};
        for (next = i; next < count && pairs[next].forward == pairs[i].forward && pairs[next].backward == pairs[i].backward &&
                       pairs[next].kind == pairs[i].kind; next++)
            add(&times, pairs[next].time, calibration->arena);
        Pair pair = pairs[i];
        pair.time = typical(&times);
        pair.count = times.count;
        pair.parts[0] = pass_time(calibration, pair.forward, ACTION_F);
        pair.parts[1] = pass_time(calibration, pair.backward, pair.kind);
        pairs[kinds++] = pair;
    }
    *gathered = pairs;
    return kinds;
}

/* An F&B takes the share of one stage of its F and that of another of its backward: the shares that come nearest to all of them, by
   least squares. Where pairs do not tell two stages apart both keep to the share of all. */
static void fit_shares(Calibration *calibration)
{
    enum { SWEEPS = 200 };
    static const double hold = 1e-6;
    const uint32_t stages = calibration->trace->stages;
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
    for (size_t i = 0; i < count; i++)
        calibration->shares[pairs[i].forward] = calibration->shares[pairs[i].backward] = mean;
    for (int sweep = 0; sweep < SWEEPS && turn > 0; sweep++)
        for (uint32_t s = 0; s < stages; s++) {
            double above = 0, below = 0;
            for (size_t i = 0; i < count; i++) {
                const Pair *pair = &pairs[i];
                const double own = (pair->forward == s ? pair->parts[0] : 0) + (pair->backward == s ? pair->parts[1] : 0);
                const double other = (pair->forward == s ? 0 : pair->parts[0] * calibration->shares[pair->forward]) +
                                     (pair->backward == s ? 0 : pair->parts[1] * calibration->shares[pair->backward]);
                above += own * (pair->time - other) * (double)pair->count;
                below += own * own * (double)pair->count;
            }
            if (below > 0)
                calibration->shares[s] = (above + hold * below * mean) / (below * (1 + hold));
        }
}

/* From the end of the pass that made a message to the end of the wait for it, where the receiver was waiting by then. */
static void gather_messages(Calibration *calibration)
{
    const Trace *trace = calibration->trace;
    for (uint32_t s = 0; s < trace->step_count; s++) {
        const TraceIndex index = trace_index(trace, trace->steps[s], calibration->arena);
        const TraceStep step = trace_step_events(trace, trace->steps[s]);
        for (const TraceEvent *wait = step.first; wait < step.end; wait++) {
            if (wait->kind < KINDS)
                continue;
            const TraceEvent *made = trace_needed(&index, wait);
            if (made && wait->start <= made->end && wait->end >= made->end)
                add(&calibration->messages, wait->end - made->end, calibration->arena);
        }
    }
}

static Calibration calibration_of(const Trace *trace, Arena *arena)
{
    Calibration calibration = {.trace = trace, .arena = arena};
    calibration.passes = arena_array(arena, trace->stages, sizeof *calibration.passes);
    calibration.shares = arena_array(arena, trace->stages, sizeof *calibration.shares);
    gather_passes(&calibration);
    split_pairs(&calibration);
    fit_shares(&calibration);
    gather_messages(&calibration);
    return calibration;
}

/* --- the cost file --- */

static void put_samples(const char *name, uint32_t stage, const Samples *samples, FILE *stream)
{
    const double time = typical(samples);
    char key[32];
    snprintf(key, sizeof key, "%s[%u]", name, stage);
    fprintf(stream, "%-8s = %-10.6g # %zu of %.4g to %.4g\n", key, time, samples->count, samples->values[0],
            samples->values[samples->count - 1]);
}

static void put_stages(const Calibration *calibration, FILE *stream)
{
    for (uint8_t kind = 0; kind < KINDS; kind++)
        for (uint32_t s = 0; s < calibration->trace->stages; s++)
            if (calibration->passes[s][kind].count)
                put_samples(action_names[kind], s, &calibration->passes[s][kind], stream);
    for (uint32_t s = 0; s < calibration->trace->stages; s++) {
        const double turn = pass_time(calibration, s, ACTION_F) + pass_time(calibration, s, ACTION_B);
        char key[32];
        snprintf(key, sizeof key, "FB[%u]", s);
        if (turn > 0 && !isnan(calibration->shares[s]))
            fprintf(stream, "%-8s = %-10.6g # %.4g of its halves in turn\n", key, calibration->shares[s] * turn, calibration->shares[s]);
    }
}

/* Traces with messages of different sizes tell latency and bandwidth apart: the line through their means. */
static void put_messages(const Calibration *calibrations, int count, FILE *stream)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < count; i++) {
        const double bytes = calibrations[i].trace->message_bytes, time = typical(&calibrations[i].messages);
        if (isnan(time))
            continue;
        n++;
        x += bytes;
        y += time;
        xx += bytes * bytes;
        xy += bytes * time;
    }
    const Calibration *first = &calibrations[0];
    const double spread = n * xx - x * x, slope = spread > 0 ? (n * xy - x * y) / spread : 0;
    const double latency = (y - slope * x) / n;
    if (slope > 0 && latency >= 0) {
        fprintf(stream, "comm     = %-10.6g # latency, and bytes a second, from %.0f traces with messages of different sizes\n", latency, n);
        fprintf(stream, "bandwidth = %.6g\nbytes    = %.0f\n", 1e3 / slope, first->trace->message_bytes);
    } else if (first->messages.count) {
        fprintf(stream, "comm     = %-10.6g # %s, latency and transfer together\n", typical(&first->messages),
                counted(first->messages.count, "message").text);
    } else {
        fprintf(stream, "comm     = 0          # no rank waited for a message\n");
    }
}

static void put_costs(const Calibration *calibrations, int count, FILE *stream)
{
    const Trace *trace = calibrations[0].trace;
    fprintf(stream, "# What %s took: %s, %s, %s. For dpc --cost @FILE.\n", trace->path, trace->schedule, counted(trace->ranks, "rank").text,
            counted(trace->step_count, "step").text);
    fprintf(stream, "# Behind a figure: of how many times, from the least to the most, it is the mean without the tenth at either end.\n");
    if (trace_is_crowded(trace))
        fprintf(stream, "# %u ranks shared %s: the times hold waits for one. Fewer ranks give truer ones.\n", trace->ranks,
                counted(trace->processors, "processor").text);
    fprintf(stream, "unit     = 1e-3       # seconds: times are in milliseconds\n");
    put_stages(&calibrations[0], stream);
    put_messages(calibrations, count, stream);
}

static Status read_traces(int count, char *const *paths, uint32_t fastest, Arena *arena, Calibration *calibrations, Error *error)
{
    for (int i = 0; i < count; i++) {
        Trace *trace = arena_allocate(arena, sizeof *trace);
        TRY(trace_read(paths[i], arena, trace, error));
        select_steps(trace, fastest, arena);
        calibrations[i] = calibration_of(trace, arena);
        for (uint32_t s = 0; s < trace->stages; s++)
            if (isnan(pass_time(&calibrations[i], s, ACTION_F)))
                return error_set(error, STATUS_BAD_INPUT, "%s: no F of stage %u in it: is the trace complete?", paths[i], s);
    }
    return STATUS_OK;
}

Status calibrate(int count, char *const *paths, uint32_t fastest, const char *output, Arena *arena, Error *error)
{
    Calibration *calibrations = arena_array(arena, (size_t)count, sizeof *calibrations);
    TRY(read_traces(count, paths, fastest, arena, calibrations, error));
    OutputFile file;
    TRY(file_begin(output, &file, error));
    put_costs(calibrations, count, file.stream);
    return file_finish(&file, error);
}
