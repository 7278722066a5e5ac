#include "compiler/measured/kineto_passes.h"

#include "compiler/measured/kineto_join.h"
#include "runtime/base/counted.h"

#include <stdlib.h>
#include <string.h>

/* A pass of a rank. Times are in nanoseconds. */
typedef struct Pass {
    int64_t start, end;
    uint32_t stage, microbatch, step;
    uint8_t kind;
} Pass;

typedef struct RankPasses {
    KinetoTrace trace;
    Pass *passes;
    uint32_t count;
} RankPasses;

static Status make_pass(const KinetoTrace *trace, const KinetoMap *map, const JoinRange *range, uint32_t rank,
                        Pass *pass, Error *error)
{
    const int64_t stage = range->numbers.stage < 0 ? rank : range->numbers.stage;
    if (range->numbers.microbatch < 0)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: the pattern of a pass needs {microbatch}, as in F = PP:{stage}F{microbatch}", map->path);
    if (stage >= PROGRAM_STAGES_MAX || range->numbers.microbatch >= PROGRAM_MICROBATCHES_MAX)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: stage %lld, microbatch %lld: a stage must be below %d, a microbatch below %d",
                         trace->path, (long long)stage, (long long)range->numbers.microbatch, PROGRAM_STAGES_MAX,
                         PROGRAM_MICROBATCHES_MAX);
    *pass = (Pass){.start = INT64_MAX,
                   .stage = (uint32_t)stage,
                   .microbatch = (uint32_t)range->numbers.microbatch + (range->subject == SUBJECT_PASS + ACTION_U),
                   .kind = (uint8_t)(range->subject - SUBJECT_PASS)};
    return STATUS_OK;
}

static void take_kernels(const KinetoTrace *trace, const JoinRanges *ranges, Pass *passes)
{
    const KinetoJoin join = kineto_join(trace);
    for (size_t i = 0; i < trace->kernel_count; i++) {
        const KinetoKernel *kernel = &trace->kernels[i];
        const KinetoLaunch *launch = kineto_launch(&join, kernel);
        const uint32_t range = launch ? join_find(ranges, launch) : JOIN_NONE;
        if (range != JOIN_NONE)
            kernel_widen(&passes[range].start, &passes[range].end, kernel);
    }
}

static int by_what_and_start(const void *left, const void *right)
{
    const Pass *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->microbatch != b->microbatch)
        return a->microbatch < b->microbatch ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static bool same_pass(const Pass *a, const Pass *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch;
}

static int by_start(const void *left, const void *right)
{
    const Pass *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return by_what_and_start(a, b);
}

static Status read_rank(RankPasses *rank, const KinetoMap *map, uint32_t number, Arena *arena, Error *error)
{
    const KinetoTrace *trace = &rank->trace;
    const JoinRanges ranges = join_ranges(trace, map, SUBJECT_PASS, SUBJECT_PASS + ACTION_U, arena);
    Pass *passes = rank->passes = arena_array(arena, ranges.count, sizeof *passes);
    bool on_gpu = false;
    for (uint32_t i = 0; i < ranges.count; i++)
        TRY(make_pass(trace, map, &ranges.ranges[i], number, &passes[i], error));
    take_kernels(trace, &ranges, passes);
    for (uint32_t i = 0; i < ranges.count; i++)
        on_gpu |= passes[i].start != INT64_MAX;
    for (uint32_t i = 0; i < ranges.count; i++) {
        if (!on_gpu) {
            passes[i].start = ranges.ranges[i].start;
            passes[i].end = ranges.ranges[i].end;
        }
        if (passes[i].start != INT64_MAX)
            passes[rank->count++] = passes[i];
    }
    if (!rank->count)
        return error_set(error, STATUS_BAD_INPUT, "%s: no annotation in it matches an F, B, I, W or U of %s",
                         trace->path, map->path);
    qsort(passes, rank->count, sizeof *passes, by_what_and_start);
    for (uint32_t i = 0; i < rank->count; i++)
        passes[i].step = i && same_pass(&passes[i - 1], &passes[i]) ? passes[i - 1].step + 1 : 1;
    qsort(passes, rank->count, sizeof *passes, by_start);
    return STATUS_OK;
}

static int by_rank(const void *left, const void *right)
{
    const RankPasses *a = left, *b = right;
    return (a->trace.rank > b->trace.rank) - (a->trace.rank < b->trace.rank);
}

/* Sorts the files by the ranks that they name, if all name different ranks. Otherwise keeps their order. */
static void sort_ranks(RankPasses *ranks, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k <= i; k++)
            if (ranks[i].trace.rank < 0 || (k < i && ranks[i].trace.rank == ranks[k].trace.rank))
                return;
    qsort(ranks, (size_t)count, sizeof *ranks, by_rank);
}

/* Whether the rank may wait for a message before this pass: the stage that computes the input of the pass is not on
   this rank. Also true for the B or I of the last stage, which needs no message; trace_needed finds no pass for such a
   wait. */
static bool may_wait(const RankPasses *rank, const Pass *pass)
{
    if (pass->kind == ACTION_W || pass->kind == ACTION_U || (pass->kind == ACTION_F && pass->stage == 0))
        return false;
    const uint32_t maker = pass->stage + (pass->kind == ACTION_F ? UINT32_MAX : 1);
    for (uint32_t i = 0; i < rank->count; i++)
        if (rank->passes[i].stage == maker)
            return false;
    return true;
}

static TraceEvent event_of(const Pass *pass, uint32_t rank, int64_t begin)
{
    static const double milliseconds = 1e-6; /* in a nanosecond */
    return (TraceEvent){.kind = pass->kind,
                        .stage = (uint16_t)pass->stage,
                        .rank = (uint16_t)rank,
                        .microbatch = pass->microbatch,
                        .step = pass->step,
                        .start = (double)(pass->start - begin) * milliseconds,
                        .end = (double)(pass->end - begin) * milliseconds};
}

static void append_rank(const RankPasses *rank, uint32_t number, int64_t begin, Trace *trace)
{
    for (uint32_t i = 0; i < rank->count; i++) {
        const Pass *pass = &rank->passes[i];
        const TraceEvent event = event_of(pass, number, begin);
        const uint32_t microbatches = pass->microbatch + (pass->kind != ACTION_U);
        trace->stages = pass->stage >= trace->stages ? pass->stage + 1 : trace->stages;
        trace->microbatches[0] = microbatches > trace->microbatches[0] ? microbatches : trace->microbatches[0];
        if (i && pass->step == pass[-1].step && may_wait(rank, pass)) {
            TraceEvent wait = event;
            wait.kind = pass->kind == ACTION_F ? ACTION_RECV_F : ACTION_RECV_B;
            wait.start = event_of(pass - 1, number, begin).end;
            wait.end = event.start;
            trace->events[trace->count++] = wait;
        }
        trace->events[trace->count++] = event;
    }
}

Status kineto_passes(const KinetoMap *map, int count, char *const *paths, Arena *arena, Trace *trace, Error *error)
{
    RankPasses *ranks = arena_array(arena, (size_t)count, sizeof *ranks);
    int64_t begin = INT64_MAX;
    size_t total = 0;
    if (count > PROGRAM_RANKS_MAX)
        return error_set(error, STATUS_BAD_INPUT, "%d traces, one for each rank: there can be at most %d", count,
                         PROGRAM_RANKS_MAX);
    for (int i = 0; i < count; i++)
        TRY(kineto_read(paths[i], arena, &ranks[i].trace, error));
    sort_ranks(ranks, count);
    for (int i = 0; i < count; i++) {
        TRY(read_rank(&ranks[i], map, (uint32_t)i, arena, error));
        total += 2 * (size_t)ranks[i].count;
        begin = ranks[i].passes[0].start < begin ? ranks[i].passes[0].start : begin;
    }
    *trace = (Trace){.path = count == 1 ? paths[0]
                                        : arena_format(arena, "%s with %s", ranks[0].trace.path,
                                                       counted((uint64_t)count - 1, "other trace").text),
                     .schedule = "PyTorch",
                     .source = "",
                     .mapped = true,
                     .ranks = (uint32_t)count,
                     .pipe_count = 1,
                     .events = arena_array(arena, total, sizeof *trace->events)};
    for (int i = 0; i < count; i++)
        append_rank(&ranks[i], (uint32_t)i, begin, trace);
    trace_sort_by_step(trace, arena);
    return STATUS_OK;
}
