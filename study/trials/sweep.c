#include "study/trials/sweep.h"

#include "study/trials/cores.h"
#include "compiler/order/require.h"
#include "compiler/output/terminal.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"
#include "base/clock.h"
#include "base/counted.h"
#include "program/times/costs_parts.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum Outcome { PROVEN, NOT_ADMITTED, FAILED, NO_MEMORY } Outcome;

/* The result of one combination. */
typedef struct Proof {
    Outcome outcome;
    double makespan;
    uint32_t costs_stages;
    uint32_t derived; /* the derived costs that the combination uses, as bits 1 << StageCost */
    bool recut;       /* the schedule has another number of stages than the costs are for */
    DiagKind kind;    /* why it failed, if the outcome is FAILED */
    bool refused;
} Proof;

typedef struct Work {
    const Sweep *sweep;
    const Source *source;
    const Parameters *given;
    const Memory *memory;
    const Costs *costs;
    const Ast *tree; /* the parsed file, to check its requires */
    /* --slot-bytes, and costs that do not say for how many stages they are, are for 1/ranks of the model; false: for
       one stage */
    bool recuts;
    ProgressBar progress;
    pthread_mutex_t mutex; /* protects the fields below */
    uint64_t next, done;
    uint32_t stages; /* number of stages of the combination that was placed last; 0: none has been placed */
    bool mixed;      /* combinations have different numbers of stages */
    bool no_memory;
    /* index of the combination with the least makespan among those proven so far; of equal ones the smallest index */
    uint64_t best;
    SweepResult *result;
} Work;

/* --- one combination --- */

typedef struct Combination {
    Work *work;
    Costs costs;
    bool placed, ordered; /* placed: the stages have been placed; ordered: the orders have been made */
} Combination;

static void note_stages(Work *work, uint32_t stages)
{
    pthread_mutex_lock(&work->mutex);
    work->mixed |= work->stages && stages != work->stages;
    work->stages = stages;
    pthread_mutex_unlock(&work->mutex);
}

/* Returns N if --slot-bytes, and costs that do not say for how many stages they are, are for 1/N of the model. */
static uint32_t parts_of(const Work *work, const Schedule *schedule)
{
    return work->recuts ? schedule->ranks : schedule->pipes[0].stages;
}

/* Called with each form of a compilation. Notes how far the compilation came. If the sweep compares makespans, notes
   the number of stages of the schedule and, if the costs do not name the number of stages that they are for, sets this
   number. */
static Status on_the_way(const Compilation *c, Form form)
{
    Combination *combination = (Combination *)c->context;
    combination->ordered |= form == FORM_ORDER;
    if (form != FORM_SCHEDULE)
        return STATUS_OK;
    combination->placed = true;
    if (!combination->work->sweep->compares)
        return STATUS_OK;
    note_stages(combination->work, c->schedule.pipes[0].stages);
    if (combination->costs.model_stages <= 0)
        combination->costs.model_stages = parts_of(combination->work, &c->schedule);
    return STATUS_OK;
}

/* Whether the compilation ended because a require that uses cost() failed: such requires are checked after the
   placement, when the costs are known. The file does not admit the combination then. */
static bool not_admitted(const Combination *combination, const Compilation *c)
{
    return combination->work->tree->cost && combination->placed && !combination->ordered &&
           diag_is_refusal(c->diagnostics);
}

static Status compile_combination(Work *work, uint64_t index, Compilation *c, Error *error)
{
    Parameters *parameters = arena_allocate(c->arena, sizeof *parameters);
    Combination *combination = arena_allocate(c->arena, sizeof *combination);
    *parameters = sweep_parameters(work->sweep, work->given, index, c->arena);
    *combination = (Combination){.work = work, .costs = work->costs ? *work->costs : costs_unit};
    c->parameters = parameters;
    c->memory = work->sweep->compares ? NULL : work->memory;
    c->costs = &combination->costs;
    c->reached = on_the_way;
    c->context = combination;
    TRY(compile(c, error));
    if (!work->sweep->compares || !work->memory)
        return STATUS_OK;
    const Memory memory = memory_recut(work->memory, parts_of(work, &c->schedule), c->schedule.pipes[0].stages);
    return memory_check(&memory, &c->schedule, c->program, c->diagnostics) ? STATUS_OK : STATUS_BAD_INPUT;
}

static void predict(const Compilation *c, Proof *proof)
{
    Timeline times;
    timeline_run(&c->schedule, &c->table, &c->resolved, c->arena, &times);
    proof->makespan = times.makespan;
    proof->costs_stages = (uint32_t)c->costs->model_stages;
    proof->recut = c->schedule.pipes[0].stages != proof->costs_stages;
    proof->derived = schedule_costs_used(&c->schedule) & costs_derived(&c->resolved);
}

static void prove_combination(Work *work, uint64_t index, Arena *arena, Proof *proof)
{
    Error error = {""};
    const Parameters parameters = sweep_parameters(work->sweep, work->given, index, arena);
    Compilation c = {.arena = arena, .source = work->source};
    proof->outcome = NOT_ADMITTED;
    if (!require_admits(work->tree, &parameters, values_new(work->tree, &parameters, arena)))
        return;
    const bool proven = compile_combination(work, index, &c, &error) == STATUS_OK;
    if (!proven && not_admitted(c.context, &c))
        return;
    proof->outcome = proven ? PROVEN : FAILED;
    proof->kind = diag_kind(c.diagnostics);
    proof->refused = work->sweep->compares && diag_is_refusal(c.diagnostics);
    if (proven && work->sweep->compares)
        predict(&c, proof);
}

static void try_combination(Work *work, uint64_t index, Proof *proof)
{
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    if (setjmp(exhausted) == 0)
        prove_combination(work, index, &arena, proof);
    else
        proof->outcome = NO_MEMORY;
    arena_free(&arena);
}

/* --- all combinations --- */

static void count_failure(SweepResult *result, uint64_t index, const Proof *proof)
{
    uint32_t i = 0;
    while (i < result->failure_count && (result->failures[i].kind.begin != proof->kind.begin ||
                                         result->failures[i].kind.format != proof->kind.format))
        i++;
    result->more_failures |= i == SWEEP_FAILURES_MAX;
    if (i == SWEEP_FAILURES_MAX)
        return;
    SweepFailure *failure = &result->failures[i];
    if (i == result->failure_count) {
        result->failure_count++;
        *failure = (SweepFailure){.kind = proof->kind, .first = index, .refused = proof->refused};
    }
    failure->count++;
    failure->first = index < failure->first ? index : failure->first;
}

static void take_proof(Work *work, uint64_t index, const Proof *proof)
{
    SweepResult *result = work->result;
    const bool proven = proof->outcome == PROVEN;
    if (proven && (!result->proven || proof->makespan < result->makespan ||
                   (proof->makespan <= result->makespan && index < work->best))) {
        work->best = index;
        result->makespan = proof->makespan;
    }
    result->proven += proven;
    if (proven) {
        result->costs_stages = proof->costs_stages;
        result->derived |= proof->derived;
        result->recut |= proof->recut;
    }
    result->not_admitted += proof->outcome == NOT_ADMITTED;
    work->no_memory |= proof->outcome == NO_MEMORY;
    if (proof->outcome != FAILED)
        return;
    result->refused += proof->refused;
    result->failed += !proof->refused;
    count_failure(result, index, proof);
}

static void *work_on(void *argument)
{
    Work *work = argument;
    pthread_mutex_lock(&work->mutex);
    while (work->next < work->sweep->combinations && !work->no_memory && work->mixed == work->recuts) {
        const uint64_t index = work->next++;
        pthread_mutex_unlock(&work->mutex);
        Proof proof = {0};
        try_combination(work, index, &proof);
        pthread_mutex_lock(&work->mutex);
        take_proof(work, index, &proof);
        progress_bar_show(&work->progress, ++work->done, work->sweep->combinations, "");
    }
    pthread_mutex_unlock(&work->mutex);
    return NULL;
}

/* At first the given costs are for one stage, as in a compilation. If the combinations have different numbers of
   stages, their makespans compare only if the costs are for the same part of the model. The sweep then starts again
   with costs for 1/ranks of the model, as dpc compare does. */
static void try_all(Work *work)
{
    on_all_cores(work_on, work, work->sweep->combinations);
    if (!work->mixed)
        return;
    work->recuts = true;
    work->next = work->done = 0;
    *work->result = (SweepResult){0};
    on_all_cores(work_on, work, work->sweep->combinations);
}

/* --- why combinations failed --- */

static int by_first(const void *left, const void *right)
{
    const SweepFailure *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

static void explain_failures(Work *work, const Compilation *compilation)
{
    SweepResult *result = work->result;
    qsort(result->failures, result->failure_count, sizeof *result->failures, by_first);
    for (uint32_t i = 0; i < result->failure_count; i++) {
        SweepFailure *failure = &result->failures[i];
        Compilation again = *compilation;
        compile_combination(work, failure->first, &again, &failure->error);
        failure->diagnostics = again.diagnostics;
        failure->options = sweep_options(work->sweep, failure->first, compilation->arena);
    }
}

static Status none_admitted(Work *work, Compilation *compilation, Error *error)
{
    Error reason = {""};
    const Status status = compile_combination(work, 0, compilation, &reason);
    return error_set(error, status, "%s: no combination of %s can be compiled; the errors are those of the first, %s",
                     work->source->path, work->sweep->text, sweep_options(work->sweep, 0, compilation->arena));
}

/* Reports a size or parameter that has a range in --sweep and also a value of its own on the command line. */
static Status said_once(const Sweep *sweep, const Parameters *given, Error *error)
{
    for (uint32_t i = 0; i < sweep->range_count; i++) {
        const char *name = sweep->ranges[i].name;
        const bool ranks = strcmp(name, "ranks") == 0, microbatches = strcmp(name, "microbatches") == 0;
        if (ranks ? given->has_ranks : microbatches ? given->has_microbatches : parameters_has(given, name))
            return error_set(error, STATUS_BAD_USAGE, "--sweep already sets %s: leave %s%s out", name,
                             ranks || microbatches ? "--" : "-D ", name);
    }
    return STATUS_OK;
}

Status sweep(const Sweep *sweep, Compilation *compilation, FILE *progress, SweepResult *result, Error *error)
{
    *result = (SweepResult){0};
    if (source_is_order(compilation->source))
        return error_set(error, STATUS_BAD_USAGE, "--sweep: %s is an order, which has no parameters; give a .dps file",
                         compilation->source->path);
    const int64_t start = clock_nanoseconds();
    Arena *arena = compilation->arena;
    const Parameters *given = compilation->parameters, first = sweep_parameters(sweep, given, 0, arena);
    compilation->diagnostics = diag_new(arena, compilation->source);
    compilation->tree = parse(compilation->source, arena, compilation->diagnostics);
    if (!compilation->tree || !check(compilation->tree, arena, compilation->diagnostics))
        return STATUS_BAD_INPUT;
    TRY(parameters_check(compilation->tree, given, NULL, error));
    TRY(parameters_check(compilation->tree, &first, "--sweep", error));
    TRY(said_once(sweep, given, error));
    Work work = {.sweep = sweep,
                 .source = compilation->source,
                 .given = given,
                 .memory = compilation->memory,
                 .costs = compilation->costs,
                 .tree = compilation->tree,
                 .progress = progress_bar_of(progress),
                 .mutex = PTHREAD_MUTEX_INITIALIZER,
                 .result = result};
    try_all(&work);
    progress_bar_clear(&work.progress);
    result->seconds = (double)(clock_nanoseconds() - start) * 1e-9;
    if (work.no_memory)
        arena_exhausted(arena);
    if (result->not_admitted == sweep->combinations)
        return none_admitted(&work, compilation, error);
    if (sweep->compares && result->proven)
        result->best = sweep_options(sweep, work.best, arena);
    explain_failures(&work, compilation);
    return result->failed || !result->proven ? STATUS_BAD_INPUT : STATUS_OK;
}

/* --- output --- */

static void print_failure(const Sweep *sweep, const SweepFailure *failure, const Compilation *compilation, FILE *errors)
{
    const bool one = failure->count == 1;
    diag_print(failure->diagnostics, errors);
    fprintf(errors, "dpc: %s: %" PRIu64 " of %s fail%s like this%s %s", compilation->source->path, failure->count,
            counted(sweep->combinations, "combination").text, one ? "s" : "", one ? ":" : ", the first with",
            failure->options);
    fprintf(errors, *failure->error.text ? ": %s\n" : "%s\n", failure->error.text);
}

static void print_best(const SweepResult *result, const Compilation *compilation, FILE *stream)
{
    const Costs *given = compilation->costs ? compilation->costs : &costs_unit;
    const Costs costs = costs_resolve(given, result->costs_stages, NULL, compilation->arena);
    fprintf(stream, "  least makespan %.6g%s ", result->makespan, costs_unit_text(given));
    if (result->recut && !costs_of_whole_model(given))
        fprintf(stream, "if the given times are those of 1/%u of the model: %s\n", result->costs_stages, result->best);
    else
        fprintf(stream, "under the given times: %s\n", result->best);
    costs_put_derived(&costs, result->derived, "  derived cost: ", stream);
}

void sweep_print(const Sweep *sweep, const SweepResult *result, const Compilation *compilation, FILE *stream,
                 FILE *errors)
{
    fprintf(stream, "%s: proven for %s of %s in %.1f s", compilation->tree->schedule,
            counted(result->proven, "combination").text, sweep->text, result->seconds);
    if (result->not_admitted)
        fprintf(stream, "; `require` in the file excludes %" PRIu64 " more", result->not_admitted);
    if (result->failed)
        fprintf(stream, "; %" PRIu64 " more fail%s", result->failed, result->failed == 1 ? "s" : "");
    putc('\n', stream);
    for (uint32_t i = 0; i < result->failure_count; i++)
        if (result->failures[i].refused)
            fprintf(stream, "  skipped %s%s %s: %s\n", counted(result->failures[i].count, "combination").text,
                    result->failures[i].count == 1 ? ":" : ", the first", result->failures[i].options,
                    diag_first(result->failures[i].diagnostics, compilation->arena));
    if (result->best && result->proven > 1)
        print_best(result, compilation, stream);
    fflush(stream);
    for (uint32_t i = 0; i < result->failure_count; i++)
        if (!result->failures[i].refused)
            print_failure(sweep, &result->failures[i], compilation, errors);
    if (result->more_failures)
        fprintf(errors,
                "dpc: %s: other combinations fail in other ways, which are not shown; a smaller --sweep shows them\n",
                compilation->source->path);
}
