#include "study/measured/calibrate.h"

#include "study/measured/calibration.h"
#include "study/measured/kineto_costs.h"
#include "study/measured/kineto_passes.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/text.h"

#include <math.h>

static void put_cost(const char *name, uint32_t stage, double time, FILE *stream)
{
    char key[32];
    snprintf(key, sizeof key, "%s[%u]", name, stage);
    fprintf(stream, "%-8s = %-10.6g # ", key, time);
}

static void put_range(const Samples *samples, FILE *stream)
{
    fprintf(stream, " from %.4g to %.4g", samples->values[0], samples->values[samples->count - 1]);
}

static void put_pass(const Calibration *calibration, uint32_t stage, uint8_t kind, FILE *stream)
{
    const Samples *samples = &calibration->passes[stage][kind];
    const double part = calibration->parts[stage][kind];
    const char *pair = calibration->pairs[stage] ? "F&B" : "F&F";
    put_cost(action_names[kind], stage, samples_typical(samples), stream);
    if (part > 0) {
        fprintf(stream, "derived: %.2g of an %s, as it never ran alone; %s", part, pair,
                counted(samples->count, "sample").text);
    } else {
        fprintf(stream, "measured: %s", counted(samples->count, "sample").text);
        if (calibration->paired[stage][kind])
            fprintf(stream, " in %ss, as it never ran alone,", pair);
    }
    put_range(samples, stream);
    putc('\n', stream);
}

static void put_stages(const Calibration *calibration, FILE *stream)
{
    for (uint8_t kind = 0; kind < CALIBRATION_KINDS; kind++)
        for (uint32_t s = 0; s < calibration->stages; s++)
            if (calibration->passes[s][kind].count)
                put_pass(calibration, s, kind, stream);
    for (uint32_t s = 0; s < calibration->stages; s++) {
        const double turn = calibration_pass(calibration, s, ACTION_F) + calibration_pass(calibration, s, ACTION_B);
        const double share = calibration->shares[s];
        if (!(turn > 0) || isnan(share))
            continue;
        put_cost("FB", s, share * turn, stream);
        fprintf(stream, "derived: %.4g of F + B, the share that fits %s best\n", share,
                counted(calibration->pairs[s], "F&B").text);
    }
}

/* The times of the messages in all traces whose messages are as large as those in the first trace, or where one of the
   two sizes is unknown (is_of_model). */
static Samples typical_messages(const Calibration *calibration)
{
    Samples all = {0};
    for (int t = 0; t < calibration->count; t++)
        for (size_t i = 0; calibration->inputs[t].is_of_model && i < calibration->inputs[t].messages.count; i++)
            samples_add(&all, calibration->inputs[t].messages.values[i], calibration->arena);
    return all;
}

/* Writes the cost of a message. If the traces have messages of different sizes, fits a line through their typical
   times by least squares: its value at 0 bytes is the latency, its slope the time of a byte. Unless the line has a
   positive slope and a latency of at least 0, and the size in the first trace is known, writes the typical time of
   the messages, or 0 if there are none. */
static void put_messages(const Calibration *calibration, FILE *stream)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int t = 0; t < calibration->count; t++) {
        const double bytes = calibration->inputs[t].trace.message_bytes;
        const double time = samples_typical(&calibration->inputs[t].messages);
        if (isnan(time) || bytes <= 0)
            continue;
        n++;
        x += bytes;
        y += time;
        xx += bytes * bytes;
        xy += bytes * time;
    }
    const Samples messages = typical_messages(calibration);
    const double spread = n * xx - x * x, slope = spread > 0 ? (n * xy - x * y) / spread : 0;
    const double latency = (y - slope * x) / n;
    const Trace *first = &calibration->inputs[0].trace;
    if (slope > 0 && latency >= 0 && first->message_bytes > 0) {
        fprintf(stream, "comm     = %-10.6g # derived: latency, fitted with the bandwidth, ", latency);
        fprintf(stream, "from %.0f traces with messages of different sizes\n", n);
        fprintf(stream, "bandwidth = %-9.6g # derived: bytes a second, from the same traces\n", 1e3 / slope);
        fprintf(stream, "bytes    = %-10.0f # measured: size of a message in %s\n", first->message_bytes, first->path);
    } else if (messages.count) {
        fprintf(stream, "comm     = %-10.6g # measured: %s", samples_typical(&messages),
                counted(messages.count, "message").text);
        put_range(&messages, stream);
        fputs(", latency and transfer together\n", stream);
    } else {
        fputs("comm     = 0          # derived: no message could be measured\n", stream);
    }
}

static void put_input(const CalibrationInput *input, FILE *stream)
{
    const Trace *trace = &input->trace;
    fprintf(stream, "#   %s: %s, %s, %s", trace->path, trace->schedule, counted(trace->ranks, "rank").text,
            counted(trace->step_count, "step").text);
    if (trace->replicas > 1)
        fprintf(stream, ", replica 0 of %u", trace->replicas);
    if (!input->is_of_model)
        fputs("; its messages have another size, so its passes do not count", stream);
    putc('\n', stream);
    if (trace_is_crowded(trace))
        fprintf(stream,
                "#     %u ranks shared %s: the times contain waits for a processor. Fewer ranks give better costs.\n",
                trace_all_ranks(trace), counted(trace->processors, "processor").text);
}

static void put_costs(const Calibration *calibration, FILE *stream)
{
    fputs("# Costs for dpc --cost @FILE, from\n", stream);
    for (int t = 0; t < calibration->count; t++)
        put_input(&calibration->inputs[t], stream);
    fputs("# A cost is the mean of its samples, the tenth at either end left out.\n", stream);
    fputs("unit     = 1e-3       # seconds: times are in milliseconds\n", stream);
    fprintf(stream, "stages   = %-10u # the costs hold for a model in so many stages\n", calibration->stages);
    put_stages(calibration, stream);
    put_messages(calibration, stream);
}

/* Prints a note about each trace whose passes took more than 1.25 times as long as the same passes in the first
   trace, or less than 1/1.25 of that: the machine was then not equally fast in both runs. */
static void note_speeds(const Calibration *calibration)
{
    static const double agree = 1.25;
    for (int t = 1; t < calibration->count; t++) {
        const CalibrationInput *input = &calibration->inputs[t];
        if (input->is_of_model && (input->relative > agree || input->relative < 1 / agree))
            fprintf(stderr,
                    "dpc: note: the passes that %s and %s both have took %.3g times as long in %s: the costs are means "
                    "of both. Are they traces of one model? If so, measure again, or take the shortest steps with "
                    "--fastest N\n",
                    calibration->inputs[0].trace.path, input->trace.path, input->relative, input->trace.path);
    }
}

static Status write_costs(const Calibration *calibration, const char *output, Error *error)
{
    OutputFile file;
    for (int t = 0; t < calibration->count; t++)
        text_put_lines("dpc: note: ", calibration->inputs[t].trace.notes, stderr);
    note_speeds(calibration);
    TRY(file_begin(output, &file, error));
    put_costs(calibration, file.stream);
    return file_finish(&file, error);
}

Status calibrate(int count, char *const *paths, uint32_t fastest, const char *output, Arena *arena, Error *error)
{
    Calibration calibration;
    TRY(calibration_read(count, paths, fastest, arena, &calibration, error));
    return write_costs(&calibration, output, error);
}

Status calibrate_mapped(const char *map_path, int count, char *const *paths, uint32_t fastest, const char *output,
                        Arena *arena, Error *error)
{
    KinetoMap map;
    Trace trace;
    Calibration calibration;
    TRY(kineto_map_read(map_path, arena, &map, error));
    if (kineto_map_has_components(&map) && fastest)
        return error_set(error, STATUS_BAD_USAGE,
                         "%s maps kernels to components, whose times belong to no step: leave out --fastest", map_path);
    if (kineto_map_has_components(&map))
        return kineto_calibrate(&map, count, paths, output, arena, error);
    TRY(kineto_passes(&map, count, paths, arena, &trace, error));
    TRY(calibration_of(&trace, fastest, arena, &calibration, error));
    return write_costs(&calibration, output, error);
}
