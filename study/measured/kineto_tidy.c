#include "study/measured/kineto_tidy.h"

#include "base/compare.h"
#include "base/counted.h"

#include <stdlib.h>

static void add_base(KinetoTrace *trace, int64_t base)
{
    for (size_t i = 0; i < trace->kernel_count; i++) {
        trace->kernels[i].start += base;
        trace->kernels[i].end += base;
    }
    for (size_t i = 0; i < trace->launch_count; i++)
        trace->launches[i].time += base;
    for (size_t i = 0; i < trace->annotation_count; i++) {
        trace->annotations[i].start += base;
        trace->annotations[i].end += base;
    }
}

static int by_correlation(const void *left, const void *right)
{
    const KinetoLaunch *a = left, *b = right;
    return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

static int by_stream_and_start(const void *left, const void *right)
{
    const KinetoKernel *a = left, *b = right;
    COMPARE(a->device, b->device);
    COMPARE(a->stream, b->stream);
    COMPARE(a->start, b->start);
    COMPARE(a->end, b->end);
    return 0;
}

KinetoLaunch *kineto_launch(const KinetoTrace *trace, const KinetoKernel *kernel)
{
    const KinetoLaunch wanted = {.correlation = kernel->correlation};
    if (!kernel->correlation || !trace->launch_count)
        return NULL;
    return bsearch(&wanted, trace->launches, trace->launch_count, sizeof wanted, by_correlation);
}

static void match_launches(KinetoTrace *trace)
{
    for (size_t i = 0; i < trace->kernel_count; i++) {
        KinetoLaunch *launch = kineto_launch(trace, &trace->kernels[i]);
        trace->orphans += !launch;
        if (launch)
            launch->met = true;
    }
    for (size_t i = 0; i < trace->launch_count; i++)
        trace->lost += trace->kernel_count && trace->launches[i].of_kernel && !trace->launches[i].met;
}

static void cut_kernels(KinetoTrace *trace)
{
    for (size_t i = 0; i + 1 < trace->kernel_count; i++) {
        KinetoKernel *kernel = &trace->kernels[i];
        const KinetoKernel *next = kernel + 1;
        if (next->device != kernel->device || next->stream != kernel->stream || kernel->stream == KINETO_NO_STREAM ||
            kernel->end <= next->start)
            continue;
        trace->cut++;
        trace->cut_time += (double)(kernel->end - next->start);
        kernel->end = next->start;
    }
}

void kineto_tidy(KinetoTrace *trace, int64_t base)
{
    add_base(trace, base);
    if (trace->launch_count)
        qsort(trace->launches, trace->launch_count, sizeof *trace->launches, by_correlation);
    if (trace->kernel_count)
        qsort(trace->kernels, trace->kernel_count, sizeof *trace->kernels, by_stream_and_start);
    match_launches(trace);
    cut_kernels(trace);
}

const char *kineto_notes(const KinetoTrace *trace, Arena *arena)
{
    const char *notes = "";
    if (trace->orphans)
        notes = arena_format(arena,
                             "%snot launched in the trace, so that annotations do not name the component or pass: %s\n",
                             notes, counted(trace->orphans, "kernel").text);
    if (trace->lost)
        notes =
            arena_format(arena, "%slaunched, but not in the trace: %s\n", notes, counted(trace->lost, "kernel").text);
    if (trace->incomplete)
        notes = arena_format(arena, "%sleft out: %s without a time, or with a negative one\n", notes,
                             counted(trace->incomplete, "event").text);
    if (trace->begun)
        notes = arena_format(arena, "%sleft out: %s whose begin and end are two events (ph B and E)\n", notes,
                             counted(trace->begun, "event").text);
    if (trace->cut)
        notes = arena_format(arena, "%scut by %.3f us in all: %s that lasted into the next kernel of the stream\n",
                             notes, trace->cut_time * 1e-3, counted(trace->cut, "kernel").text);
    return notes;
}
