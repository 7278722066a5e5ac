#include "study/trials/advise.h"

#include "study/trials/advise_trials.h"
#include "study/trials/compare_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_numbers(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) ? 0 : a < b ? -1 : 1;
}

/* Compares two rows: less time comes first, then less memory, fewer activations, fewer copies of the weights, fewer
   messages, and finally the name. */
static int by_merit(const void *left, const void *right)
{
    const CompareRow *a = left, *b = right;
    const double figures[][2] = {{a->makespan, b->makespan},
                                 {a->memory, b->memory},
                                 {(double)a->peak / a->stages, (double)b->peak / b->stages},
                                 {a->copies, b->copies},
                                 {(double)a->messages, (double)b->messages}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const int order = compare_numbers(figures[i][0], figures[i][1]);
        if (order)
            return order;
    }
    return strcmp(a->name, b->name);
}

enum { UNTRIED_NAMED = 3, CHUNKS_MAX = 8, COPIES_MAX = 2 };

/* The result of all attempts with one file. */
typedef struct Outcome {
    const CompareRow *best;    /* NULL: no attempt can be advised */
    const CompareRow *exceeds; /* of the attempts that do not fit into the memory limit, the one that needs least */
    const char *excluded;      /* why this schedule may not be advised, such as that it needs --allow; NULL: it may */
    /* why the file cannot be read, or why the first attempt without figures has none; NULL: neither is the case */
    const char *reason;
    /* at most UNTRIED_NAMED of the parameter values that were not tried in time, as text; NULL: all were tried */
    const char *untried;
    uint32_t untried_count;
    const char *diagnostics; /* printed diagnostics of the attempt with the file's own parameter values; NULL: none */
} Outcome;

static const char *values_tried(const Attempt *attempt, Arena *arena)
{
    const Parameters *tried = &attempt->contender->candidates.all[attempt->candidate];
    const char *text = "";
    for (uint32_t i = 0; i < tried->count; i++)
        text =
            arena_format(arena, "%s%s%s=%" PRId64, text, i ? " " : "", tried->others[i].name, tried->others[i].value);
    return text;
}

static void add_untried(Outcome *outcome, const Attempt *attempt, Arena *arena)
{
    const char *const values = attempt->fits_memory ? "less memory" : values_tried(attempt, arena);
    if (outcome->untried_count < UNTRIED_NAMED)
        outcome->untried = outcome->untried_count ? arena_format(arena, "%s, %s", outcome->untried, values) : values;
    outcome->untried_count++;
}

/* The memory of the rank that needs most, in the unit of the limit: bytes, or saved activations of 1/ranks of the
   model. */
static double needs(const TrialSettings *options, const CompareRow *row)
{
    return options->memory.limit ? row->memory : (double)row->peak * row->ranks / row->stages;
}

static const char *excess_text(const TrialSettings *options, const CompareRow *row, Arena *arena)
{
    const Memory *limits = &options->memory;
    if (row->fit == FIT_UNKNOWN)
        return arena_format(arena, "may exceed the limit: " MEMORY_LACKS, front_name(limits->front_end, SET_SLOT_BYTES),
                            memory_names(row->missing).text);
    if (!limits->limit)
        return arena_format(arena, "needs %.4g activations on a rank, more than %u", needs(options, row),
                            limits->limit_activations);
    return arena_format(arena, "needs %s%s on a rank, more than %s", row->missing ? "at least " : "",
                        bytes_text(row->memory, arena), bytes_text((double)limits->limit, arena));
}

/* Whether an attempt with other parameter values than the file's own has more than CHUNKS_MAX stages per rank or more
   than COPIES_MAX copies of the weights. Such values make many schedules faster, but most models have too few layers,
   or GPUs too little memory. If the memory limit and the weights are given in bytes, COPIES_MAX does not apply. */
static bool is_extreme(const TrialSettings *options, const Attempt *attempt)
{
    const CompareRow *row = &attempt->row;
    const bool limited = options->memory.limit && options->memory.weights;
    return attempt->candidate > 0 && (row->stages > CHUNKS_MAX * row->ranks || (!limited && row->copies > COPIES_MAX));
}

static const char *exclusion(const TrialSettings *options, const Attempt *attempt, Arena *arena)
{
    const CompareRow *row = &attempt->row;
    if (trials_exclude(options, row))
        return row->forward_only   ? "trains nothing: it has no backward passes"
               : row->asynchronous ? arena_format(arena, "updates weights within the step: %s tries it",
                                                  front_name(options->parameters.front_end, SET_ALLOW_ASYNC))
                                   : arena_format(arena, "only one rank works at a time: %s tries it",
                                                  front_name(options->parameters.front_end, SET_ALLOW_NAIVE));
    if (row->stages == 1 && row->ranks > 1)
        return "every rank would hold the whole model";
    return NULL;
}

static void judge(const TrialSettings *options, const Attempt *attempt, Arena *arena, Outcome *outcome)
{
    const CompareRow *row = &attempt->row;
    if (!attempt->finished)
        add_untried(outcome, attempt, arena);
    else if (row->diagnostics && attempt->candidate == 0)
        outcome->diagnostics = row->diagnostics;
    else if (row->reason)
        outcome->reason = outcome->reason ? outcome->reason : row->reason;
    else if (exclusion(options, attempt, arena))
        outcome->excluded = exclusion(options, attempt, arena);
    else if (is_extreme(options, attempt))
        return;
    else if (row->fit != FITS)
        outcome->exceeds =
            outcome->exceeds && needs(options, outcome->exceeds) <= needs(options, row) ? outcome->exceeds : row;
    else if (!outcome->best || by_merit(row, outcome->best) < 0)
        outcome->best = row;
}

static const char *untried_text(const Trials *trials, const Outcome *outcome, Arena *arena)
{
    const uint32_t more = outcome->untried_count > UNTRIED_NAMED ? outcome->untried_count - UNTRIED_NAMED : 0;
    const char *const when = trials->end == INTERRUPTED
                                 ? "before ctrl-C"
                                 : arena_format(arena, "within %" PRId64 " s (%sN)", trials->options->seconds,
                                                front_before(trials->options->parameters.front_end, SET_SECONDS));
    const char *const what = !outcome->untried || !*outcome->untried ? ""
                             : more ? arena_format(arena, "%s and %u more ", outcome->untried, more)
                                    : arena_format(arena, "%s ", outcome->untried);
    return arena_format(arena, "%snot tried %s", what, when);
}

/* Why the schedule has no row in the advice, or which of its parameter values were not tried in time. NULL: neither
   is the case. */
static const char *reason_of(const Trials *trials, const Outcome *outcome, Arena *arena)
{
    if (outcome->untried_count)
        return untried_text(trials, outcome, arena);
    if (outcome->best)
        return NULL;
    if (outcome->diagnostics)
        return arena_format(arena, "does not compile: %.*s", (int)strcspn(outcome->diagnostics, "\n"),
                            outcome->diagnostics);
    if (outcome->exceeds)
        return excess_text(trials->options, outcome->exceeds, arena);
    return outcome->excluded ? outcome->excluded : outcome->reason;
}

static const char *name_of(const Contender *contender, const Outcome *outcome)
{
    return outcome->best ? outcome->best->name : contender->tree ? contender->tree->schedule : contender->source.path;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const CompareRow *)left)->name, ((const CompareRow *)right)->name);
}

/* Adds the best attempt with a file to `rows`, unless no attempt can be advised. Adds the file to `left_out` if no
   attempt can be advised or some of its parameter values were not tried in time. STATUS_BAD_INPUT: the file cannot be
   read or does not compile. */
static Status add_outcome(const Trials *trials, const Contender *contender, Arena *arena, CompareRow *rows,
                          size_t *row_count, CompareRow *left_out, size_t *left_out_count, const char **diagnostics)
{
    Outcome outcome = {.reason = *contender->unreadable.text ? contender->unreadable.text : NULL};
    for (size_t k = 0; k < trials->attempt_count; k++)
        if (trials->attempts[k].contender == contender)
            judge(trials->options, &trials->attempts[k], arena, &outcome);
    if (outcome.best)
        rows[(*row_count)++] = *outcome.best;
    const char *const reason = reason_of(trials, &outcome, arena);
    if (reason)
        left_out[(*left_out_count)++] =
            (CompareRow){.path = contender->source.path, .name = name_of(contender, &outcome), .reason = reason};
    if (outcome.diagnostics)
        *diagnostics = arena_format(arena, "%s%s", *diagnostics, outcome.diagnostics);
    return outcome.diagnostics || *contender->unreadable.text ? STATUS_BAD_INPUT : STATUS_OK;
}

static Advice conclude(const Trials *trials, Arena *arena, Status *status)
{
    const size_t most = trials->contender_count;
    CompareRow *rows = arena_array(arena, 2 * most, sizeof *rows),
               *left_out = arena_array(arena, most, sizeof *left_out);
    size_t row_count = 0, left_out_count = 0;
    const char *diagnostics = "";
    for (size_t i = 0; i < most; i++) {
        const Status one = add_outcome(trials, &trials->contenders[i], arena, rows, &row_count, left_out,
                                       &left_out_count, &diagnostics);
        *status = *status == STATUS_OK ? one : *status;
    }
    qsort(rows, row_count, sizeof *rows, by_merit);
    qsort(left_out, left_out_count, sizeof *left_out, by_name);
    memcpy(rows + row_count, left_out, left_out_count * sizeof *left_out);
    return (Advice){.diagnostics = diagnostics,
                    .options = trials->options,
                    .rows = rows,
                    .row_count = row_count,
                    .all_count = row_count + left_out_count};
}

Status advise(const TrialSettings *options, const TrialsControl *control, Arena *arena, Advice *advice, Error *error)
{
    Trials trials;
    TRY(trials_run(options, control, arena, &trials, error));
    Status status = STATUS_OK;
    *advice = conclude(&trials, arena, &status);
    if (advice->row_count)
        return status;
    if (trials.end != ENDED)
        return error_set(error, STATUS_BAD_INPUT,
                         "the trials ended before any schedule could be advised: give them more seconds");
    return error_set(error, STATUS_BAD_INPUT, "no schedule can be advised; the reason of the first, %s: %s",
                     advice->rows[0].name, advice->rows[0].reason);
}
