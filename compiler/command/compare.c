#include "compiler/command/compare.h"

#include "compiler/command/compare_table.h"

#include <string.h>

typedef struct Comparison {
    const Options *options;
    Arena *arena;
    Parameters sizes; /* ranks and microbatches, where they are known */
    uint32_t cut;     /* stages that the costs are of; 0: not known yet */
} Comparison;

/* What the command line leaves open is as in the first schedule. */
static void take_sizes(Comparison *comparison, const CompareRow *row)
{
    if (!comparison->cut)
        comparison->cut = row->stages;
    if (!comparison->sizes.has_ranks && !comparison->options->stages)
        parameters_set_ranks(&comparison->sizes, row->ranks);
    if (!comparison->sizes.has_microbatches)
        parameters_set_microbatches(&comparison->sizes, row->microbatches);
}

static Status compare_one(Comparison *comparison, CompareRow *row, Error *error)
{
    const Options *options = comparison->options;
    Arena scratch = {.exhausted = comparison->arena->exhausted};
    Source source;
    Status status = source_read(row->path, &scratch, &source, error);
    if (status == STATUS_OK) {
        const Trial trial = {.source = &source, .parameters = comparison->sizes, .optional = &options->parameters,
                             .stages = (uint32_t)options->stages, .cut = comparison->cut, .costs = &options->costs,
                             .memory = &options->memory};
        status = trial_run(&trial, comparison->arena, row, error);
    }
    arena_free(&scratch);
    if (row->diagnostics)
        fputs(row->diagnostics, stderr);
    if (status == STATUS_OK && row->stages)
        take_sizes(comparison, row);
    return status;
}

static Status check_taken(const Parameters *given, const CompareTable *table, Error *error)
{
    for (uint32_t i = 0; i < given->count; i++) {
        bool taken = false;
        for (size_t r = 0; r < table->count; r++)
            for (uint32_t p = 0; p < table->rows[r].parameter_count; p++)
                taken = taken || strcmp(table->rows[r].parameters[p].name, given->others[i].name) == 0;
        if (!taken)
            return error_set(error, STATUS_BAD_USAGE, "-D %s: none of the schedules has such a parameter", given->others[i].name);
    }
    return STATUS_OK;
}

static void note_gap(const Costs *costs, const CompareTable *table)
{
    bool splits = false;
    char gap[200];
    for (size_t i = 0; i < table->count; i++)
        splits = splits || table->rows[i].splits;
    if (splits && costs_halves_gap(costs, gap, sizeof gap))
        fprintf(stderr, "dpc: note: --cost: %s\n", gap);
}

Status compare(const Options *options, Arena *arena, FILE *stream, Error *error)
{
    Comparison comparison = {.options = options, .arena = arena, .sizes = options->parameters};
    comparison.sizes.others = NULL;
    comparison.sizes.count = comparison.sizes.capacity = 0;
    CompareRow *rows = arena_array(arena, (size_t)options->input_count, sizeof *rows);
    Status status = STATUS_OK;
    for (int i = 0; i < options->input_count; i++) {
        rows[i].path = rows[i].name = options->inputs[i];
        const Status one = compare_one(&comparison, &rows[i], error);
        if (one != STATUS_OK && !rows[i].reason)
            return one;
        status = status == STATUS_OK ? one : status;
    }
    const CompareTable table = {.rows = rows, .count = (size_t)options->input_count, .cut = comparison.cut,
                                .memory = &options->memory};
    TRY(check_taken(&options->parameters, &table, error));
    note_gap(&options->costs, &table);
    if (options->json)
        compare_put_json(&table, stream);
    else
        compare_put_text(&table, arena, stream);
    return status;
}
