#include "study/measured/kineto_costs.h"

#include "study/measured/calibration.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/text.h"

#include <math.h>

static double microseconds(int64_t nanoseconds) { return (double)nanoseconds * 1e-3; }

/* --- means --- */

static ComponentTime time_of(const KinetoProfile *profiles, int count, uint8_t subject, Arena *arena)
{
    Samples times = {0}, data = {0};
    for (int p = 0; p < count; p++)
        for (uint32_t i = 0; i < profiles[p].span_count; i++) {
            const ProfileSpan *span = &profiles[p].spans[i];
            if (span->subject != subject)
                continue;
            samples_add(&times, microseconds(span->end - span->start), arena);
            if (span->data_end > span->data_start)
                samples_add(&data, microseconds(span->data_end - span->data_start), arena);
        }
    const double mean = samples_typical(&times); /* also sorts the samples */
    return (ComponentTime){.subject = subject,
                           .count = (uint32_t)times.count,
                           .mean = mean,
                           .least = times.values[0],
                           .greatest = times.values[times.count - 1],
                           .data = samples_typical(&data)};
}

ComponentTimes component_times(const KinetoProfile *profiles, int count, Arena *arena)
{
    ComponentTimes times = {0};
    bool seen[RECIPE_ENTRIES] = {false};
    for (int p = 0; p < count; p++)
        for (uint32_t i = 0; i < profiles[p].span_count; i++) {
            const uint8_t subject = profiles[p].spans[i].subject;
            const RecipeStream stream = subject_communicates(subject) ? RECIPE_COMM : RECIPE_COMPUTE;
            if (!seen[subject])
                times.entries[stream][times.counts[stream]++] = time_of(profiles, count, subject, arena);
            seen[subject] = true;
        }
    return times;
}

/* --- text that the cost file and the table have in common --- */

static void put_name(uint8_t subject, char name[static 32])
{
    const RecipeEntry entry = subject_entry(subject);
    snprintf(name, 32, "%s.%c", part_names[entry.component], part_pass_letters[entry.pass]);
}

static void put_method(const KinetoProfile *profile, FILE *stream)
{
    static const char *const methods[] = {"annotations", "the cycle of first kernels", "names of kernels"};
    const char *separator = "components by ";
    for (int i = 0; i < 3; i++)
        if (profile->found & 1u << i) {
            fprintf(stream, "%s%s", separator, methods[i]);
            separator = " and ";
        }
    fprintf(stream, " (%s)", profile->map->path);
}

static void put_source(const KinetoProfile *profile, FILE *stream)
{
    const KinetoTrace *trace = profile->trace;
    fprintf(stream, "%s: ", trace->path);
    if (trace->rank >= 0)
        fprintf(stream, "rank %lld%s", (long long)trace->rank, trace->world > 0 ? " of " : ", ");
    if (trace->rank >= 0 && trace->world > 0)
        fprintf(stream, "%lld, ", (long long)trace->world);
    if (*trace->device)
        fprintf(stream, "%s, ", trace->device);
    fprintf(stream, "%s", counted(trace->kernel_count, "kernel").text);
}

/* The number of multiprocessors that communication leaves to computation; 0: unknown. */
static uint32_t left_to_compute(const KinetoProfile *profile)
{
    const uint32_t whole = profile->trace->multiprocessors;
    return profile->blocks && profile->blocks < whole ? whole - profile->blocks : 0;
}

static void put_order(const KinetoProfile *profile, const ComponentTimes *times, const char *margin, FILE *stream)
{
    fprintf(stream, "%soverlap F&B {\n", margin);
    for (int s = 0; s < RECIPE_STREAMS; s++) {
        if (!times->counts[s])
            continue;
        fprintf(stream, "%s    %s:", margin, recipe_stream_names[s]);
        for (uint32_t i = 0; i < times->counts[s]; i++) {
            char text[32];
            recipe_entry_text(subject_entry(times->entries[s][i].subject), text, sizeof text);
            fprintf(stream, " %s", text);
        }
        if (s == RECIPE_COMM && left_to_compute(profile))
            fprintf(stream, " on %u of %u", profile->blocks, profile->trace->multiprocessors);
        fputs(";\n", stream);
    }
    fprintf(stream, "%s}\n", margin);
}

/* --- the cost file --- */

static void put_cost(const ComponentTime *time, FILE *stream)
{
    char name[32];
    put_name(time->subject, name);
    fprintf(stream, "%-16s = %-9.7g # measured: %s, from %.6g to %.6g%s\n", name, time->mean,
            counted(time->count, "run").text, time->least, time->greatest,
            isnan(time->data) ? "" : ", with the wait for other ranks");
    if (!isnan(time->data))
        fprintf(stream, "#%-15s = %-9.7g # measured: transfer of its data, without the wait\n", name, time->data);
}

static void put_costs(const KinetoProfile *profiles, int count, const ComponentTimes *times, FILE *stream)
{
    const KinetoProfile *profile = profiles;
    fputs("# Costs for dpc --cost @FILE, from\n", stream);
    for (int i = 0; i < count; i++) {
        fputs("#   ", stream);
        put_source(&profiles[i], stream);
        fputs("; ", stream);
        put_method(&profiles[i], stream);
        putc('\n', stream);
    }
    fputs(
        "# A cost is the mean time of a component, from the start of its first kernel to the end of its last one. The\n"
        "# smallest and the largest tenth of its times are left out.\n"
        "# Components ran in this order:\n",
        stream);
    put_order(profile, times, "#   ", stream);
    fputs("unit             = 1e-6      # seconds: times are in microseconds\n", stream);
    fprintf(stream, "layers           = %-9u # measured: runs of a component %s\n", profile->layers,
            profile->has_pairs ? "in an F&B" : "in the trace");
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++)
            put_cost(&times->entries[s][i], stream);
    if (times->counts[RECIPE_COMM] && profile->blocks)
        fprintf(stream,
                "multiprocessors  = %-9u # measured: blocks of the kernels in which communication spends most time\n",
                profile->blocks);
    if (times->counts[RECIPE_COMM] && left_to_compute(profile))
        fprintf(stream, "compute_share    = %-9.7g # derived: %u of %u multiprocessors, which communication left\n",
                (double)left_to_compute(profile) / profile->trace->multiprocessors, left_to_compute(profile),
                profile->trace->multiprocessors);
}

/* --- the table --- */

static void put_row(const ComponentTime *time, FILE *stream)
{
    char name[32];
    put_name(time->subject, name);
    const double spread = fmax(time->greatest - time->mean, time->mean - time->least);
    fprintf(stream, "  %-14s %10.0f %10.0f %10.0f   ±%5.1f %%", name, time->mean, time->least, time->greatest,
            time->mean > 0 ? 100 * spread / time->mean : 0);
    if (!isnan(time->data))
        fprintf(stream, " %12.0f %12.0f", time->data, time->mean - time->data);
    putc('\n', stream);
}

static void put_stream(const ComponentTimes *times, RecipeStream s, FILE *stream)
{
    double sum = 0;
    fprintf(stream, "%s\n", recipe_stream_names[s]);
    for (uint32_t i = 0; i < times->counts[s]; i++) {
        put_row(&times->entries[s][i], stream);
        sum += times->entries[s][i].mean;
    }
    fprintf(stream, "  %-14s %10.0f\n", "sum", sum);
}

static void put_lanes(const KinetoProfile *profile, FILE *stream)
{
    ProfileGroup all = {0};
    for (uint32_t i = 0; i < profile->group_count; i++) {
        const ProfileGroup *group = &profile->groups[i];
        all.end += group->end - group->start;
        all.both += group->both;
        all.idle += group->idle;
        for (int s = 0; s < RECIPE_STREAMS; s++)
            all.busy[s] += group->busy[s];
    }
    const double each = 1e-6 / profile->group_count; /* from ns of all groups to ms of a group */
    if (profile->has_pairs)
        fprintf(stream, "an F&B of %s", counted(profile->layers, "layer").text);
    else
        fprintf(stream, "all that a GPU does, with %s of a component,", counted(profile->layers, "run").text);
    fprintf(stream, " takes %.3f ms%s: compute is busy %.3f ms, ", (double)all.end * each,
            profile->group_count > 1 ? " (mean)" : "", (double)all.busy[RECIPE_COMPUTE] * each);
    if (all.busy[RECIPE_COMM])
        fprintf(stream, "communication %.3f ms, of which %.3f ms (%.1f %%) are hidden behind compute; ",
                (double)all.busy[RECIPE_COMM] * each, (double)all.both * each,
                100 * (double)all.both / (double)all.busy[RECIPE_COMM]);
    fprintf(stream, "idle %.3f ms\n", (double)all.idle * each);
    if (left_to_compute(profile))
        fprintf(stream, "communication takes %u of %u multiprocessors\n", profile->blocks,
                profile->trace->multiprocessors);
}

/* Prints notes about what the mean times do not show: several passes in a trace without F&Bs, kernels without a
   component, and what the reader noticed. */
static void put_notes(const KinetoProfile *profile, Arena *arena, FILE *stream)
{
    if (!profile->has_pairs)
        fprintf(stream,
                "note: without FB in the map, all of the trace counts as one pass: if it has more, set layers in the "
                "costs to the layers of a stage, not to %u\n",
                profile->layers);
    if (profile->foreign)
        fprintf(stream, "note: in no component of the map: %s, %.0f us\n", counted(profile->foreign, "kernel").text,
                microseconds(profile->foreign_time));
    text_put_lines("note: ", kineto_notes(profile->trace, arena), stream);
}

static void put_uneven(const KinetoProfile *profile, FILE *stream)
{
    uint32_t counts[RECIPE_ENTRIES] = {0};
    const uint32_t expected = profile->layers * profile->group_count;
    for (uint32_t i = 0; i < profile->span_count; i++)
        counts[profile->spans[i].subject]++;
    for (uint8_t subject = 0; subject < RECIPE_ENTRIES; subject++) {
        char name[32];
        put_name(subject, name);
        if (counts[subject] && counts[subject] != expected)
            fprintf(stream,
                    "note: %s ran %s, not %u: is the trace cut off, or does a pattern of the map match too few or too "
                    "many names?\n",
                    name, counted(counts[subject], "time").text, expected);
    }
}

static void put_table(const KinetoProfile *profiles, int count, const ComponentTimes *times, Arena *arena, FILE *stream)
{
    fprintf(stream, "  %-14s %10s %10s %10s %10s", "us", "mean", "least", "greatest", "spread");
    if (times->counts[RECIPE_COMM])
        fprintf(stream, " %12s %12s", "data alone", "wait");
    putc('\n', stream);
    for (RecipeStream s = 0; s < RECIPE_STREAMS; s++)
        if (times->counts[s])
            put_stream(times, s, stream);
    for (int i = 0; i < count; i++) {
        putc('\n', stream);
        put_source(&profiles[i], stream);
        fputs("; ", stream);
        put_method(&profiles[i], stream);
        putc('\n', stream);
        put_lanes(&profiles[i], stream);
        put_notes(&profiles[i], arena, stream);
        put_uneven(&profiles[i], stream);
    }
    fputs("\nthis order of components, as a schedule says it:\n\n", stream);
    put_order(profiles, times, "    ", stream);
}

/* --- the command --- */

Status kineto_calibrate(const KinetoMap *map, int count, char *const *paths, const char *output, Arena *arena,
                        Error *error)
{
    OutputFile file;
    KinetoProfile *profiles = arena_array(arena, (size_t)count, sizeof *profiles);
    KinetoTrace *traces = arena_array(arena, (size_t)count, sizeof *traces);
    for (int i = 0; i < count; i++) {
        TRY(kineto_read(paths[i], arena, &traces[i], error));
        TRY(kineto_profile(&traces[i], map, arena, &profiles[i], error));
    }
    const ComponentTimes times = component_times(profiles, count, arena);
    TRY(file_begin(output, &file, error));
    put_costs(profiles, count, &times, file.stream);
    TRY(file_finish(&file, error));
    put_table(profiles, count, &times, arena, file_is_kept(output) ? stdout : stderr);
    return STATUS_OK;
}
