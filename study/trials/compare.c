#include "study/trials/compare.h"

#include "program/times/costs_resolve.h"

#include <string.h>

typedef struct Comparison {
    const TrialSettings *options;
    Arena *arena;
    const Source *sources; /* [options->input_count]: the files */
    Parameters sizes;      /* ranks and microbatches, if they are known */
    /* the command line does not give a size, and the files from which it is taken have different numbers for it */
    bool sizes_differ;
} Comparison;

static Trial trial_of(const Comparison *comparison, int input)
{
    const TrialSettings *options = comparison->options;
    Trial trial = {.source = &comparison->sources[input],
                   .parameters = options->own[input],
                   .optional = &options->parameters,
                   .stages = (uint32_t)options->stages,
                   .replicas = (uint32_t)options->replicas,
                   .costs = &options->costs,
                   .memory = &options->memory};
    if (comparison->sizes.has_ranks)
        parameters_set_ranks(&trial.parameters, comparison->sizes.ranks);
    if (comparison->sizes.has_microbatches)
        parameters_set_microbatches(&trial.parameters, comparison->sizes.microbatches);
    trial.parts = options->stages ? trial.stages : (uint32_t)comparison->sizes.ranks;
    return trial;
}

/* --- the numbers of ranks and microbatches, if the command line does not give them: the largest among the orders
   (.csv), which admit no other sizes; without orders, the largest default among the schedules --- */

static uint32_t ranks_of(const TrialSizes *sizes) { return sizes->ranks; }
static uint32_t microbatches_of(const TrialSizes *sizes) { return sizes->microbatches; }

static uint32_t largest(Comparison *comparison, uint32_t (*size_of)(const TrialSizes *))
{
    uint32_t most[2] = {0, 0}; /* most[0]: the largest default of a schedule; most[1]: the largest size of an order */
    bool differ[2] = {false, false};
    for (int i = 0; i < comparison->options->input_count; i++) {
        const Trial trial = trial_of(comparison, i);
        const TrialSizes sizes = trial_sizes(&trial, comparison->arena);
        const bool order = source_is_order(trial.source);
        const uint32_t size = size_of(&sizes);
        differ[order] = differ[order] || (most[order] && size && size != most[order]);
        most[order] = size > most[order] ? size : most[order];
    }
    const bool order = most[1] > 0;
    comparison->sizes_differ = comparison->sizes_differ || differ[order];
    return most[order];
}

static void choose_sizes(Comparison *comparison)
{
    Parameters *sizes = &comparison->sizes;
    const uint32_t ranks = sizes->has_ranks || comparison->options->stages ? 0 : largest(comparison, ranks_of);
    if (ranks)
        parameters_set_ranks(sizes, ranks);
    const uint32_t microbatches = sizes->has_microbatches ? 0 : largest(comparison, microbatches_of);
    if (microbatches)
        parameters_set_microbatches(sizes, microbatches);
}

/* --- the table --- */

/* Checks that each -D given for all files is a parameter of at least one schedule. A file that does not compile may
   have it. */
static Status check_taken(const Parameters *given, const CompareTable *table, Error *error)
{
    for (uint32_t i = 0; i < given->count; i++) {
        bool taken = false;
        for (size_t r = 0; r < table->count; r++) {
            taken = taken || table->rows[r].diagnostics;
            for (uint32_t p = 0; p < table->rows[r].parameter_count; p++)
                taken = taken || strcmp(table->rows[r].parameters[p].name, given->others[i].name) == 0;
        }
        if (!taken)
            return error_set(error, STATUS_BAD_USAGE, "%s %s: none of the schedules has such a parameter",
                             front_name(given->front_end, SET_PARAMETER), given->others[i].name);
    }
    return STATUS_OK;
}

static Status fill_rows(const Comparison *comparison, CompareRow *rows, const char **diagnostics, Error *error)
{
    Status status = STATUS_OK;
    for (int i = 0; i < comparison->options->input_count; i++) {
        const Trial trial = trial_of(comparison, i);
        const Status one = trial_run(&trial, comparison->arena, &rows[i], error);
        if (rows[i].diagnostics)
            *diagnostics = arena_format(comparison->arena, "%s%s", *diagnostics, rows[i].diagnostics);
        if (one != STATUS_OK && !rows[i].reason)
            return one;
        status = status == STATUS_OK ? one : status;
    }
    return status;
}

Status compare(const TrialSettings *options, Arena *arena, CompareTable *table, Error *error)
{
    const size_t count = (size_t)options->input_count;
    Source *sources = arena_array(arena, count, sizeof *sources);
    CompareRow *rows = arena_array(arena, count, sizeof *rows);
    Costs *costs = arena_allocate(arena, sizeof *costs);
    CompareSort sort;
    *table = (CompareTable){.diagnostics = ""};
    TRY(compare_sort_named(options->sort ? options->sort : "makespan", &sort, error));
    for (size_t i = 0; i < count; i++)
        TRY(source_read(options->inputs[i], arena, &sources[i], error));
    Comparison comparison = {.options = options, .arena = arena, .sources = sources, .sizes = options->parameters};
    choose_sizes(&comparison);
    const Status status = fill_rows(&comparison, rows, &table->diagnostics, error);
    if (status != STATUS_OK && status != STATUS_BAD_INPUT)
        return status;
    CompareTable made = {.rows = rows,
                         .count = count,
                         .diagnostics = table->diagnostics,
                         .sizes_differ = comparison.sizes_differ,
                         .by_stages = options->stages > 0,
                         .replicas = (uint32_t)options->replicas,
                         .parts = trial_of(&comparison, 0).parts,
                         .memory = &options->memory,
                         .costs = costs};
    made.costs_stages = trial_costs_stages(&options->costs, made.parts, &made.stages_assumed);
    TRY(check_taken(&options->parameters, &made, error));
    *costs = costs_resolve(&options->costs, made.costs_stages, NULL, arena);
    compare_sort(rows, count, sort);
    *table = made;
    return status;
}
