#include "compiler/command/sweep.h"

#include "compiler/order/require.h"
#include "compiler/output/terminal.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"
#include "runtime/base/clock.h"
#include "runtime/program/program.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* --- ranges --- */

static bool read_number(const char **next, int64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)**next) && **next != '-')
        return false;
    errno = 0;
    const long long read = strtoll(*next, &end, 10);
    if (errno || end == *next)
        return false;
    *value = read;
    *next = end;
    return true;
}

static bool skip(const char **next, const char *text)
{
    const bool there = strncmp(*next, text, strlen(text)) == 0;
    *next += there ? strlen(text) : 0;
    return there;
}

/* a, a..b or a..b..step at `next`, which goes on behind it; b may be a number of times the ranks. */
static bool read_range(const char **next, SweepRange *range)
{
    range->step = 1;
    if (!read_number(next, &range->first))
        return false;
    range->last = range->first;
    if (skip(next, "..")) {
        if (!read_number(next, &range->last))
            return false;
        range->times_ranks = skip(next, "*ranks");
        if (skip(next, "..") && !read_number(next, &range->step))
            return false;
    }
    return range->step >= 1 && (range->times_ranks ? range->last >= 1 && range->last <= INT32_MAX : range->last >= range->first) &&
           (range->first >= 0 || range->last <= INT64_MAX + range->first);
}

/* How many numbers the range has with so many ranks. */
static uint64_t count_of(const SweepRange *range, int64_t ranks)
{
    const int64_t last = range->times_ranks ? range->last * ranks : range->last;
    return last < range->first ? 0 : (uint64_t)(last - range->first) / (uint64_t)range->step + 1;
}

/* All of them with so many ranks, or with all numbers of ranks where nothing goes by these. False: more than can be counted. */
static bool count_with(const Sweep *sweep, int64_t ranks, uint64_t *count)
{
    *count = 1;
    for (uint32_t i = sweep->by_ranks; i < sweep->range_count; i++)
        if (__builtin_mul_overflow(*count, count_of(&sweep->ranges[i], ranks), count))
            return false;
    return true;
}

static bool count_all(Sweep *sweep)
{
    const SweepRange *ranks = &sweep->ranges[0];
    if (!sweep->by_ranks)
        return count_with(sweep, 0, &sweep->combinations);
    if (ranks->last > INT32_MAX || count_of(ranks, 0) > PROGRAM_RANKS_MAX)
        return false;
    sweep->combinations = 0;
    for (uint64_t i = 0; i < count_of(ranks, 0); i++) {
        uint64_t count;
        if (!count_with(sweep, ranks->first + (int64_t)i * ranks->step, &count) ||
            __builtin_add_overflow(sweep->combinations, count, &sweep->combinations))
            return false;
    }
    return true;
}

static bool is_size(const char *name) { return strcmp(name, "ranks") == 0 || strcmp(name, "microbatches") == 0; }

Status sweep_parse(const char *text, Arena *arena, Sweep *sweep, Error *error)
{
    *sweep = (Sweep){.text = text, .compares = true};
    for (const char *next = text;;) {
        const char *const written = next;
        const size_t shown = strcspn(written, ","), length = strcspn(next, "=,");
        if (sweep->range_count == SWEEP_RANGES_MAX)
            return error_set(error, STATUS_BAD_USAGE, "--sweep: more than %d ranges", SWEEP_RANGES_MAX);
        SweepRange *range = &sweep->ranges[sweep->range_count];
        range->name = arena_text(arena, next, length);
        next += length + 1;
        if (!length || written[length] != '=' || !read_range(&next, range) || (*next && *next != ','))
            return error_set(error, STATUS_BAD_USAGE, "--sweep: '%.*s' is not NAME=LEAST..MOST, NAME=LEAST..MOST..STEP or NAME=NUMBER",
                             (int)shown, written);
        if (is_size(range->name) && range->first < 1)
            return error_set(error, STATUS_BAD_USAGE, "--sweep: %s needs at least 1", range->name);
        for (uint32_t i = 0; i < sweep->range_count; i++)
            if (strcmp(sweep->ranges[i].name, range->name) == 0)
                return error_set(error, STATUS_BAD_USAGE, "--sweep: %s has two ranges", range->name);
        if (range->times_ranks && (!sweep->range_count || strcmp(sweep->ranges[0].name, "ranks") != 0))
            return error_set(error, STATUS_BAD_USAGE, "--sweep: for '%.*s' the first range has to be that of the ranks", (int)shown,
                             written);
        sweep->by_ranks |= range->times_ranks;
        sweep->compares &= !is_size(range->name);
        sweep->range_count++;
        if (!*next++)
            break;
    }
    if (!count_all(sweep))
        return error_set(error, STATUS_BAD_USAGE, "--sweep: more combinations than can be counted");
    if (!sweep->combinations)
        return error_set(error, STATUS_BAD_USAGE, "--sweep: %s are no combinations at all", text);
    return STATUS_OK;
}

/* The numbers of a combination, [range]. */
static void values_of(const Sweep *sweep, uint64_t index, int64_t *values)
{
    int64_t ranks = sweep->ranges[0].first;
    uint64_t count;
    if (sweep->by_ranks) {
        for (; count_with(sweep, ranks, &count) && index >= count; ranks += sweep->ranges[0].step)
            index -= count;
        values[0] = ranks;
    }
    for (uint32_t i = sweep->range_count; i-- > sweep->by_ranks;) {
        count = count_of(&sweep->ranges[i], ranks);
        values[i] = sweep->ranges[i].first + (int64_t)(index % count) * sweep->ranges[i].step;
        index /= count;
    }
}

static Parameters parameters_of(const Sweep *sweep, const Parameters *given, uint64_t index, Arena *arena)
{
    Parameters made = *given;
    made.others = NULL; /* an array of its own */
    made.count = made.capacity = 0;
    for (uint32_t i = 0; i < given->count; i++)
        parameters_set(&made, arena, given->others[i].name, given->others[i].value);
    int64_t values[SWEEP_RANGES_MAX];
    values_of(sweep, index, values);
    for (uint32_t i = 0; i < sweep->range_count; i++)
        if (strcmp(sweep->ranges[i].name, "ranks") == 0)
            parameters_set_ranks(&made, values[i]);
        else if (strcmp(sweep->ranges[i].name, "microbatches") == 0)
            parameters_set_microbatches(&made, values[i]);
        else
            parameters_set(&made, arena, sweep->ranges[i].name, values[i]);
    return made;
}

/* As on the command line of a single compilation. */
static const char *options_text(const Sweep *sweep, uint64_t index, Arena *arena)
{
    const char *text = "";
    int64_t values[SWEEP_RANGES_MAX];
    values_of(sweep, index, values);
    for (uint32_t i = 0; i < sweep->range_count; i++) {
        const char *name = sweep->ranges[i].name;
        text = arena_format(arena, is_size(name) ? "%s%s--%s %" PRId64 : "%s%s-D %s=%" PRId64, text, i ? " " : "", name,
                            values[i]);
    }
    return text;
}

/* --- the work --- */

typedef struct Makespan {
    double time;
    uint64_t combination;
} Makespan;

/* What a combination came to. */
typedef struct Proof {
    double makespan;
    uint32_t stages;
} Proof;

typedef enum Outcome { PROVEN, NOT_ADMITTED, FAILED, NO_MEMORY } Outcome;

typedef struct Work {
    const Sweep *sweep;
    const Source *source;
    const Parameters *given;
    const Memory *memory;
    const Costs *costs;
    const Ast *tree; /* for its requires */
    ProgressBar progress;
    pthread_mutex_t mutex; /* of all that follows */
    uint64_t next, done, failed; /* failed: the first combination so far; the number of combinations when none */
    uint64_t proven, not_admitted;
    bool no_memory;
    Makespan least; /* of the proven ones; of equal ones the first */
    uint32_t stages; /* of these */
    bool recut;      /* not of all: their times are of other stages, and say nothing beside each other */
} Work;

static Outcome prove_combination(const Work *work, uint64_t index, Arena *arena, volatile Proof *proof)
{
    Error error = {""};
    const Parameters parameters = parameters_of(work->sweep, work->given, index, arena);
    Compilation compilation = {.arena = arena, .source = work->source, .parameters = &parameters, .memory = work->memory,
                               .costs = work->costs};
    if (!require_admits(work->tree, &parameters, values_new(work->tree, arena)))
        return NOT_ADMITTED;
    if (compile(&compilation, &error) != STATUS_OK)
        return FAILED;
    if (work->sweep->compares) {
        const Costs costs = costs_of_components(work->costs ? work->costs : &costs_unit, compilation.schedule.recipe, arena);
        Timeline times;
        timeline_run(&compilation.schedule, &compilation.table, &costs, arena, &times);
        proof->makespan = times.makespan;
        proof->stages = compilation.schedule.pipes[0].stages;
    }
    return PROVEN;
}

static Outcome try_combination(const Work *work, uint64_t index, volatile Proof *proof)
{
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    volatile Outcome outcome = NO_MEMORY;
    if (setjmp(exhausted) == 0)
        outcome = prove_combination(work, index, &arena, proof);
    arena_free(&arena);
    return outcome;
}

static void *work_on(void *argument)
{
    Work *work = argument;
    pthread_mutex_lock(&work->mutex);
    while (work->next < work->failed && !work->no_memory) { /* none behind one that failed can be the first */
        const uint64_t index = work->next++;
        pthread_mutex_unlock(&work->mutex);
        volatile Proof proof = {0, 0};
        const Outcome outcome = try_combination(work, index, &proof);
        pthread_mutex_lock(&work->mutex);
        const Makespan *least = &work->least;
        work->recut |= outcome == PROVEN && work->proven && proof.stages != work->stages;
        if (outcome == PROVEN && !work->proven)
            work->stages = proof.stages;
        if (outcome == PROVEN &&
            (!work->proven || proof.makespan < least->time || (proof.makespan <= least->time && index < least->combination)))
            work->least = (Makespan){proof.makespan, index};
        work->done++;
        work->proven += outcome == PROVEN;
        work->not_admitted += outcome == NOT_ADMITTED;
        work->no_memory |= outcome == NO_MEMORY;
        if (outcome == FAILED && index < work->failed)
            work->failed = index;
        progress_bar_show(&work->progress, work->done, work->sweep->combinations, "");
    }
    pthread_mutex_unlock(&work->mutex);
    return NULL;
}

static void work_on_all_cores(Work *work)
{
    enum { THREADS_MAX = 256 };
    pthread_t threads[THREADS_MAX];
    cpu_set_t cores;
    uint64_t wanted = sched_getaffinity(0, sizeof cores, &cores) == 0 ? (uint64_t)CPU_COUNT(&cores) : 1;
    int started = 0;
    /* What one combination frees, the next one needs: give nothing back to the system, it costs as much as the proofs. */
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    if (wanted > work->sweep->combinations)
        wanted = work->sweep->combinations;
    while ((uint64_t)started + 1 < wanted && started < THREADS_MAX &&
           pthread_create(&threads[started], NULL, work_on, work) == 0)
        started++;
    work_on(work);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* Compiles one combination for its diagnostics. */
static Status fail_with(const Work *work, uint64_t index, Compilation *compilation, Error *error)
{
    Arena *arena = compilation->arena;
    Parameters *parameters = arena_allocate(arena, sizeof *parameters);
    *parameters = parameters_of(work->sweep, work->given, index, arena);
    compilation->parameters = parameters;
    Error reason = {""};
    const Status status = compile(compilation, &reason);
    const char *options = options_text(work->sweep, index, arena);
    if (work->not_admitted == work->sweep->combinations)
        error_set(error, status, "%s: its requires admit none of the %" PRIu64 " combinations of %s, the first of them %s",
                  work->source->path, work->sweep->combinations, work->sweep->text, options);
    else
        error_set(error, status, "%s: fails with %s, combination %" PRIu64 " of %" PRIu64 "%s%s", work->source->path, options,
                  index + 1, work->sweep->combinations, *reason.text ? ": " : "", reason.text);
    return status;
}

/* What a range goes through has no one value. */
static Status said_once(const Sweep *sweep, const Parameters *given, Error *error)
{
    for (uint32_t i = 0; i < sweep->range_count; i++) {
        const char *name = sweep->ranges[i].name;
        bool twice = strcmp(name, "ranks") == 0 ? given->has_ranks : strcmp(name, "microbatches") == 0 && given->has_microbatches;
        for (uint32_t k = 0; k < given->count; k++)
            twice |= strcmp(given->others[k].name, name) == 0;
        if (twice)
            return error_set(error, STATUS_BAD_USAGE, "--sweep goes through %s: leave %s%s out", name, is_size(name) ? "--" : "-D ", name);
    }
    return STATUS_OK;
}

Status sweep(const Sweep *sweep, Compilation *compilation, FILE *progress, SweepResult *result, Error *error)
{
    if (source_is_order(compilation->source))
        return error_set(error, STATUS_BAD_USAGE, "--sweep: %s is an order, and has no parameters", compilation->source->path);
    const int64_t start = clock_nanoseconds();
    Arena *arena = compilation->arena;
    const Parameters first = parameters_of(sweep, compilation->parameters, 0, arena);
    compilation->diagnostics = diag_new(arena, compilation->source);
    compilation->tree = parse(compilation->source, arena, compilation->diagnostics);
    if (!compilation->tree || !check(compilation->tree, arena, compilation->diagnostics))
        return STATUS_BAD_INPUT;
    TRY(parameters_check(compilation->tree, &first, "--sweep", error));
    TRY(said_once(sweep, compilation->parameters, error));
    Work work = {.sweep = sweep, .source = compilation->source, .given = compilation->parameters, .memory = compilation->memory,
                 .costs = compilation->costs, .tree = compilation->tree, .progress = progress_bar_of(progress),
                 .mutex = PTHREAD_MUTEX_INITIALIZER, .failed = sweep->combinations};
    work_on_all_cores(&work);
    progress_bar_clear(&work.progress);
    *result = (SweepResult){.proven = work.proven, .not_admitted = work.not_admitted, .seconds = (double)(clock_nanoseconds() - start) * 1e-9};
    if (sweep->compares && work.proven && !work.recut) {
        result->best = options_text(sweep, work.least.combination, arena);
        result->makespan = work.least.time;
    }
    if (work.no_memory)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    if (work.failed < sweep->combinations)
        return fail_with(&work, work.failed, compilation, error);
    return work.proven ? STATUS_OK : fail_with(&work, 0, compilation, error);
}
