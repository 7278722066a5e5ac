#include "study/trials/advise_trials.h"

#include "study/trials/cores.h"
#include "study/trials/installed.h"
#include "compiler/output/terminal.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"
#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Work {
    Trials *trials;
    ProgressBar progress;
    pthread_mutex_t mutex; /* protects the fields below */
    size_t next, done;
} Work;

/* Whether the trials must end: the time is up, or the user has interrupted them. trials->end then says which. */
static bool is_over(Trials *trials)
{
    const TrialsControl *control = trials->control;
    if (trials->end == ENDED && control->interrupted && *control->interrupted)
        trials->end = INTERRUPTED;
    else if (trials->end == ENDED && clock_nanoseconds() >= trials->deadline)
        trials->end = OUT_OF_TIME;
    return trials->end != ENDED;
}

/* Called by a search from time to time. Notes whether the trials must end. */
static void check_time(void *trials, const SearchProgress *progress)
{
    (void)progress;
    is_over(trials);
}

/* --- the files --- */

/* Reads a file and finds its candidates. `own`: the -D given for this file alone. If the file cannot be read,
   contender->unreadable says why. STATUS_BAD_USAGE: `own` sets a parameter that the file does not have. */
static Status open_contender(const TrialSettings *options, const char *path, const Parameters *own, Arena *arena,
                             Contender *contender, Error *error)
{
    const Parameters *given = &options->parameters;
    contender->candidates = (Candidates){.count = 1, .all = arena_allocate(arena, sizeof(Parameters))};
    contender->source.path = path;
    const Status read = source_read(path, arena, &contender->source, &contender->unreadable);
    if (read == STATUS_NO_MEMORY)
        *error = contender->unreadable;
    if (read != STATUS_OK)
        return read == STATUS_NO_MEMORY ? read : STATUS_OK;
    Parameters *known = contender->candidates.all;
    known->front_end = given->front_end;
    parameters_set_ranks(known, given->ranks);
    parameters_set_microbatches(known, given->microbatches);
    Diagnostics *diagnostics = diag_new(arena, &contender->source);
    Ast *tree = source_is_order(&contender->source) ? NULL : parse(&contender->source, arena, diagnostics);
    if (!tree || !check(tree, arena, diagnostics))
        return STATUS_OK;
    TRY(parameters_check(tree, own, NULL, error));
    for (uint32_t i = 0; i < given->count; i++)
        if (parameter_item(tree, given->others[i].name))
            parameters_set(known, arena, given->others[i].name, given->others[i].value);
    for (uint32_t i = 0; i < own->count; i++)
        parameters_set(known, arena, own->others[i].name, own->others[i].value);
    contender->tree = tree;
    contender->candidates = candidates_of(tree, known, arena);
    return STATUS_OK;
}

static bool same_file(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static Status add_contender(Trials *trials, const char *path, const Parameters *own, Arena *arena, Error *error)
{
    for (size_t i = 0; i < trials->contender_count && !own->count; i++)
        if (same_file(trials->contenders[i].source.path, path))
            return STATUS_OK;
    return open_contender(trials->options, path, own, arena, &trials->contenders[trials->contender_count++], error);
}

static Status open_contenders(Trials *trials, Arena *arena, Error *error)
{
    static const Parameters none = {0};
    const TrialSettings *options = trials->options;
    FileList files;
    files = (FileList){0};
    const Status found = trials->control->installed ? installed_schedules(arena, &files, error) : STATUS_OK;
    if (found != STATUS_OK && !options->input_count)
        return found;
    *error = (Error){""};
    trials->contenders = arena_array(arena, files.count + (size_t)options->input_count, sizeof *trials->contenders);
    for (size_t i = 0; i < files.count; i++)
        TRY(add_contender(trials, files.paths[i], &none, arena, error));
    for (int i = 0; i < options->input_count; i++)
        TRY(add_contender(trials, options->inputs[i], &options->own[i], arena, error));
    return STATUS_OK;
}

/* Whether a schedule has the parameter. A .dps file that cannot be read or does not compile may have it. */
static bool has_taker(const Trials *trials, const char *name)
{
    for (size_t i = 0; i < trials->contender_count; i++) {
        const Contender *contender = &trials->contenders[i];
        if (contender->tree ? parameter_item(contender->tree, name) != NULL : !source_is_order(&contender->source))
            return true;
    }
    return false;
}

static Status check_taken(const Trials *trials, Error *error)
{
    const Parameters *given = &trials->options->parameters;
    for (uint32_t i = 0; i < given->count; i++)
        if (!has_taker(trials, given->others[i].name))
            return error_set(error, STATUS_BAD_USAGE, "%s %s: none of the schedules has such a parameter",
                             front_name(given->front_end, SET_PARAMETER), given->others[i].name);
    return STATUS_OK;
}

/* --- one attempt --- */

static Status try_parameters(Trials *trials, Attempt *attempt, const Parameters *parameters, CompareRow *row)
{
    const TrialSettings *options = trials->options;
    const SearchControl until_over = {.stop = &trials->end, .progress = check_time, .context = trials};
    const Trial trial = {.source = &attempt->contender->source,
                         .parameters = *parameters,
                         .parts = (uint32_t)options->parameters.ranks,
                         .replicas = (uint32_t)options->replicas,
                         .costs = &options->costs,
                         .memory = &options->memory,
                         .search = &until_over};
    Error error = {""};
    const Status status = trial_run(&trial, attempt->arena, row, &error);
    if (status != STATUS_OK && !row->reason)
        row->reason = arena_format(attempt->arena, "%s", error.text);
    return status;
}

/* The `memory` to give a search next, after the search with memory = `told` gave a program that exceeds the limit:
   told * limit / (what the program needs). If the limit is in bytes, the weights are first subtracted from limit and
   need, because they do not depend on the order. If the factor is not between 0 and 1, the result is told / 2. */
static int64_t less_memory(const Memory *given, const CompareRow *row, int64_t told)
{
    const double fixed = given->given ? (double)given->weights * row->copies : 0;
    const double share = given->limit_activations
                             ? (double)given->limit_activations * row->stages / row->ranks / row->peak
                             : ((double)given->limit - fixed) / (row->memory - fixed);
    return share > 0 && share < 1 ? (int64_t)((double)told * share) : told / 2;
}

/* Looks for the largest `memory` of `order auto` with which the program keeps the limit. Tries the expected value
   (less_memory), then a neighbour of it, then bisects. attempt->row becomes the row of the largest value that keeps the
   limit; if none does, that of the last value tried. */
static void fit_memory(Trials *trials, Attempt *attempt)
{
    const TrialSettings *options = trials->options;
    const Contender *contender = attempt->contender;
    const Item *const knob = memory_parameter(contender->tree);
    Parameters parameters = contender->candidates.all[attempt->candidate];
    int64_t *values = values_new(contender->tree, &parameters, attempt->arena);
    Fault fault;
    if (!values_for_all(contender->tree, &parameters, values, &fault))
        return;
    int64_t fits = 0, exceeds = values[knob->slot], next = less_memory(&options->memory, &attempt->row, exceeds);
    /* with no spare capacity, parameters_set copies the array and does not change the candidate's own */
    parameters.capacity = parameters.count;
    parameters_set(&parameters, attempt->arena, knob->name.symbol->text, exceeds);
    for (int tries = 0; exceeds - fits > 1 && !is_over(trials); tries++) {
        CompareRow row;
        next = next <= fits ? fits + 1 : next >= exceeds ? exceeds - 1 : next;
        parameters.others[parameters.count - 1].value = next;
        const bool runs = try_parameters(trials, attempt, &parameters, &row) == STATUS_OK && !row.reason;
        /* an attempt without figures counts as keeping the limit: its memory was too small for any order, so the next
           value is larger */
        *(runs && row.fit == EXCEEDS ? &exceeds : &fits) = next;
        next = tries ? fits + (exceeds - fits) / 2 : runs && row.fit == EXCEEDS ? next - 1 : next + 1;
        if (runs && (row.fit == FITS || attempt->row.fit != FITS))
            attempt->row = row;
    }
}

static void try_attempt(Trials *trials, Attempt *attempt)
{
    jmp_buf exhausted;
    attempt->arena->exhausted = &exhausted;
    if (setjmp(exhausted)) {
        attempt->status = STATUS_NO_MEMORY;
        trials->end = NO_MEMORY;
    } else if (attempt->fits_memory) {
        fit_memory(trials, attempt);
    } else {
        attempt->status =
            try_parameters(trials, attempt, &attempt->contender->candidates.all[attempt->candidate], &attempt->row);
    }
    attempt->arena->exhausted = trials->arena->exhausted;
    /* if the time limit or ctrl-C has stopped the trials, a search may have been cut short */
    attempt->finished = trials->end == ENDED;
}

/* --- all attempts --- */

static void *work_on(void *argument)
{
    Work *work = argument;
    Trials *trials = work->trials;
    pthread_mutex_lock(&work->mutex);
    while (work->next < trials->attempt_count && !is_over(trials)) {
        Attempt *attempt = &trials->attempts[work->next++];
        pthread_mutex_unlock(&work->mutex);
        try_attempt(trials, attempt);
        pthread_mutex_lock(&work->mutex);
        progress_bar_show(&work->progress, ++work->done, trials->attempt_count, " trials");
    }
    pthread_mutex_unlock(&work->mutex);
    return NULL;
}

static Attempt *add_attempt(Trials *trials, Contender *contender, size_t candidate)
{
    Attempt *added = &trials->attempts[trials->attempt_count++];
    *added = (Attempt){.contender = contender, .candidate = candidate, .arena = arena_scratch(trials->arena)};
    return added;
}

static bool is_searched(const Contender *contender) { return contender->tree && contender->tree->order; }

/* Adds attempts with candidates first..last-1 of the schedules with `order auto` (`searched`) or of those without.
   Candidate k of every file comes before candidate k + 1 of any file, so that the likely values of each file are tried
   in time. Skips files that are excluded or cannot be read. */
static void add_candidates(Trials *trials, bool searched, size_t first, size_t last)
{
    for (size_t candidate = first; candidate < last; candidate++)
        for (size_t i = 0; i < trials->contender_count; i++) {
            Contender *contender = &trials->contenders[i];
            if (is_searched(contender) == searched && !contender->excluded && !*contender->unreadable.text &&
                candidate < contender->candidates.count)
                add_attempt(trials, contender, candidate);
        }
}

bool trials_exclude(const TrialSettings *options, const CompareRow *row)
{
    return row->forward_only || (row->asynchronous && !options->allow_async) ||
           (!options->allow_naive && strcmp(row->name, "naive") == 0);
}

/* Called after the first attempts of the files without `order auto`. Excludes the schedules whose first attempt failed
   or did not finish, and those that are not allowed: no other values of their parameters are tried. */
static void exclude(Trials *trials)
{
    for (size_t i = 0; i < trials->attempt_count; i++) {
        const Attempt *attempt = &trials->attempts[i];
        attempt->contender->excluded =
            !attempt->finished || attempt->status != STATUS_OK || trials_exclude(trials->options, &attempt->row);
    }
}

/* Repeats each finished attempt with `order auto` whose program exceeds the memory limit, to give its search less
   memory. Skips a file whose `memory` is not a parameter's name, and a file for which a -D sets this parameter: then
   its candidates contain it. */
static void add_fitting(Trials *trials)
{
    const size_t count = trials->attempt_count;
    for (size_t i = 0; i < count; i++) {
        const Attempt *attempt = &trials->attempts[i];
        const Item *knob = is_searched(attempt->contender) ? memory_parameter(attempt->contender->tree) : NULL;
        if (knob && attempt->finished && attempt->status == STATUS_OK && !attempt->row.reason &&
            attempt->row.fit == EXCEEDS && !attempt->row.missing &&
            !parameters_has(&attempt->contender->candidates.all[attempt->candidate], knob->name.symbol->text)) {
            Attempt *added = add_attempt(trials, attempt->contender, attempt->candidate);
            added->fits_memory = true;
            added->row = attempt->row;
        }
    }
}

/* First tries one candidate of each file that has no `order auto`, to find out whether its schedule is excluded. Then
   tries all other candidates, those of files with `order auto` last. Finally repeats the searches whose programs
   exceeded the memory limit, and gives `order auto` a smaller `memory`. */
static void try_in_turn(Work *work)
{
    Trials *trials = work->trials;
    add_candidates(trials, false, 0, 1);
    on_all_cores(work_on, work, trials->attempt_count - work->next);
    exclude(trials);
    add_candidates(trials, false, 1, CANDIDATES_MAX);
    add_candidates(trials, true, 0, CANDIDATES_MAX);
    on_all_cores(work_on, work, trials->attempt_count - work->next);
    add_fitting(trials);
    on_all_cores(work_on, work, trials->attempt_count - work->next);
}

static void try_all(Trials *trials)
{
    enum { QUIET = 900000000, SECOND = 1000000000 }; /* in ns; no progress is shown during the first QUIET */
    const int64_t now = clock_nanoseconds();
    Work work = {
        .trials = trials, .progress = progress_bar_of(trials->control->progress), .mutex = PTHREAD_MUTEX_INITIALIZER};
    work.progress.shown_at = now + QUIET;
    trials->deadline = now + SECOND * trials->options->seconds;
    try_in_turn(&work);
    progress_bar_clear(&work.progress);
}

Status trials_run(const TrialSettings *options, const TrialsControl *control, Arena *arena, Trials *trials,
                  Error *error)
{
    size_t most = 0;
    *trials = (Trials){.options = options, .control = control, .arena = arena};
    TRY(open_contenders(trials, arena, error));
    TRY(check_taken(trials, error));
    for (size_t i = 0; i < trials->contender_count; i++)
        /* each attempt may get a second one with less memory for its search */
        most += 2 * trials->contenders[i].candidates.count;
    trials->attempts = arena_array(arena, most, sizeof *trials->attempts);
    if (control->begins)
        control->begins();
    try_all(trials);
    for (size_t i = 0; i < trials->attempt_count; i++)
        if (trials->attempts[i].status == STATUS_NO_MEMORY) {
            arena_exhausted(arena);
            return error_set(error, STATUS_NO_MEMORY, "out of memory");
        }
    return STATUS_OK;
}
