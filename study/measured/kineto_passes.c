#include "study/measured/kineto_passes.h"

#include "study/measured/kineto_join.h"
#include "study/measured/trace_align.h"
#include "base/compare.h"
#include "base/counted.h"

#include <stdlib.h>
#include <string.h>

/* A pass of a rank. Times are in nanoseconds. begun: the start of its annotation; start: INT64_MAX until it is known */
typedef struct Pass {
    int64_t begun, start, end;
    uint32_t stage, microbatch, step;
    uint8_t kind;
} Pass;

typedef struct RankPasses {
    KinetoTrace trace;
    Pass *passes;
    uint32_t count;
    const char *notes; /* lines, as those of kineto_notes */
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
    *pass = (Pass){.begun = range->start,
                   .start = INT64_MAX,
                   .end = INT64_MIN,
                   .stage = (uint32_t)stage,
                   .microbatch = (uint32_t)range->numbers.microbatch + (range->subject == SUBJECT_PASS + ACTION_U),
                   .kind = (uint8_t)(range->subject - SUBJECT_PASS)};
    return STATUS_OK;
}

static void take_kernels(const KinetoTrace *trace, const JoinRanges *ranges, Pass *passes)
{
    for (size_t i = 0; i < trace->kernel_count; i++) {
        const KinetoKernel *kernel = &trace->kernels[i];
        const KinetoLaunch *launch = kineto_launch(trace, kernel);
        const uint32_t range = launch ? join_find(ranges, launch) : JOIN_NONE;
        if (range != JOIN_NONE)
            kernel_widen(&passes[range].start, &passes[range].end, kernel);
    }
}

static int by_what_and_begin(const void *left, const void *right)
{
    const Pass *a = left, *b = right;
    COMPARE(a->kind, b->kind);
    COMPARE(a->stage, b->stage);
    COMPARE(a->microbatch, b->microbatch);
    COMPARE(a->begun, b->begun);
    return 0;
}

static bool same_pass(const Pass *a, const Pass *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch;
}

static int by_start(const void *left, const void *right)
{
    const Pass *a = left, *b = right;
    COMPARE(a->start, b->start);
    return by_what_and_begin(a, b);
}

/* Numbers the steps of all passes of the rank, also of those without kernels. Then keeps the passes with kernels or, if
   none has any, those of all annotations. */
static void select_passes(RankPasses *rank, const JoinRanges *ranges, Arena *arena)
{
    Pass *passes = rank->passes;
    bool on_gpu = false;
    for (uint32_t i = 0; i < ranges->count; i++)
        on_gpu |= passes[i].start != INT64_MAX;
    for (uint32_t i = 0; i < ranges->count && !on_gpu; i++) {
        passes[i].start = ranges->ranges[i].start;
        passes[i].end = ranges->ranges[i].end;
    }
    qsort(passes, ranges->count, sizeof *passes, by_what_and_begin);
    for (uint32_t i = 0; i < ranges->count; i++)
        passes[i].step = i && same_pass(&passes[i - 1], &passes[i]) ? passes[i - 1].step + 1 : 1;
    for (uint32_t i = 0; i < ranges->count; i++)
        if (passes[i].start != INT64_MAX)
            passes[rank->count++] = passes[i];
    if (rank->count < ranges->count)
        rank->notes = arena_format(arena, "%sleft out: %s without a kernel\n", rank->notes,
                                   counted(ranges->count - rank->count, "pass").text);
    if (!on_gpu && rank->trace.kernel_count)
        rank->notes = arena_format(arena,
                                   "%spasses last as long as their annotations on the CPU, because no pass "
                                   "launched one of the kernels\n",
                                   rank->notes);
    qsort(passes, rank->count, sizeof *passes, by_start);
}

/* A rank runs one pass after the other: cuts a pass that lasts into the next one. */
static void cut_passes(RankPasses *rank, Arena *arena)
{
    uint32_t cut = 0;
    double time = 0; /* ns */
    for (uint32_t i = 0; i + 1 < rank->count; i++) {
        Pass *pass = &rank->passes[i];
        if (pass->end <= pass[1].start)
            continue;
        cut++;
        time += (double)(pass->end - pass[1].start);
        pass->end = pass[1].start;
    }
    if (cut)
        rank->notes = arena_format(arena, "%scut by %.3f us in all: %s that lasted into the next one\n", rank->notes,
                                   time * 1e-3, counted(cut, "pass").text);
}

static Status read_rank(RankPasses *rank, const KinetoMap *map, uint32_t number, Arena *arena, Error *error)
{
    const KinetoTrace *trace = &rank->trace;
    const JoinRanges ranges = join_ranges(trace, map, SUBJECT_PASS, SUBJECT_PASS + ACTION_U, arena);
    if (!ranges.count)
        return error_set(error, STATUS_BAD_INPUT, "%s: no annotation in it matches an F, B, I, W or U of %s",
                         trace->path, map->path);
    rank->passes = arena_array(arena, ranges.count, sizeof *rank->passes);
    rank->notes = kineto_notes(trace, arena);
    for (uint32_t i = 0; i < ranges.count; i++)
        TRY(make_pass(trace, map, &ranges.ranges[i], number, &rank->passes[i], error));
    take_kernels(trace, &ranges, rank->passes);
    select_passes(rank, &ranges, arena);
    cut_passes(rank, arena);
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

/* Ranks whose first passes are farther apart than this, in ns, count their times from different origins. Milliseconds
   in a double would lose digits. */
static const int64_t apart_from = 900000000000;

Status kineto_passes(const KinetoMap *map, int count, char *const *paths, Arena *arena, Trace *trace, Error *error)
{
    RankPasses *ranks = arena_array(arena, (size_t)count, sizeof *ranks);
    int64_t begin = INT64_MAX, last = INT64_MIN; /* first and last start of a rank's first pass */
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
        last = ranks[i].passes[0].start > last ? ranks[i].passes[0].start : last;
    }
    *trace = (Trace){.path = count == 1 ? paths[0]
                                        : arena_format(arena, "%s with %s", ranks[0].trace.path,
                                                       counted((uint64_t)count - 1, "other trace").text),
                     .schedule = "PyTorch",
                     .source = "",
                     .notes = "",
                     .mapped = true,
                     .ranks = (uint32_t)count,
                     .pipe_count = 1,
                     .events = arena_array(arena, total, sizeof *trace->events)};
    const bool apart = last - begin > apart_from;
    for (int i = 0; i < count; i++)
        append_rank(&ranks[i], (uint32_t)i, apart ? ranks[i].passes[0].start : begin, trace);
    if (apart)
        trace_note(trace, arena, "%s: the times of the ranks have different origins: each counts from its first pass",
                   trace->path);
    for (int i = 0; i < count; i++)
        for (const char *line = ranks[i].notes; *line; line += strcspn(line, "\n") + 1)
            trace_note(trace, arena, "%s: %.*s", ranks[i].trace.path, (int)strcspn(line, "\n"), line);
    trace_sort_by_step(trace, arena);
    trace_align(trace, arena);
    return STATUS_OK;
}
