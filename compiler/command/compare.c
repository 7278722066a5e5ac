#include "compiler/command/compare.h"

#include "compiler/command/compare_table.h"
#include "compiler/compile.h"
#include "compiler/order/require.h"
#include "compiler/schedule/rank_load.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"
#include "runtime/base/counted.h"

#include <math.h>
#include <string.h>

enum { RANKS_A_STAGE = 4 }; /* looked for with --stages: no more ranks than so many a stage */

typedef struct Comparison {
    const Options *options;
    Arena *arena;
    Parameters sizes; /* ranks and microbatches, where they are known */
    uint32_t cut;     /* stages that the costs are of; 0: not known yet */
    bool *taken;      /* [-D]: some schedule has it */
    bool splits;      /* some schedule runs the halves of a backward apart */
} Comparison;

/* One schedule on its way. */
typedef struct Trial {
    Comparison *comparison;
    const Source *source;
    Parameters parameters;
    Costs costs;
    Arena *arena;
    bool places_only; /* up to where the stages live */
    const char *name; /* of the schedule; NULL: it did not come so far */
    uint32_t stages;  /* 0: it did not come so far */
} Trial;

/* A schedule takes those -D that it has. */
static void take_parameters(Trial *trial, const Ast *tree)
{
    const Parameters *given = &trial->comparison->options->parameters;
    for (uint32_t i = 0; i < given->count; i++)
        for (const Item *item = tree->items; item; item = item->next)
            if (item->kind == ITEM_PARAM && strcmp(item->name.symbol->text, given->others[i].name) == 0) {
                parameters_set(&trial->parameters, trial->arena, given->others[i].name, given->others[i].value);
                trial->comparison->taken[i] = true;
            }
}

static Status on_the_way(const Compilation *c, Form form)
{
    Trial *trial = *(Trial *const *)c->context;
    Comparison *comparison = trial->comparison;
    if (form == FORM_TREE) {
        trial->name = arena_format(comparison->arena, "%s", c->tree->schedule);
        take_parameters(trial, c->tree);
    }
    if (form != FORM_SCHEDULE)
        return STATUS_OK;
    trial->stages = c->schedule.pipes[0].stages;
    if (trial->places_only)
        return STATUS_BAD_INPUT; /* that is enough */
    if (!comparison->cut)
        comparison->cut = trial->stages;
    const Costs costs = costs_of_components(&comparison->options->costs, c->schedule.recipe, trial->arena);
    trial->costs = costs_recut(&costs, comparison->cut, trial->stages, trial->arena);
    return STATUS_OK;
}

static Status try_schedule(Trial *trial, Compilation *c, Error *error)
{
    *c = (Compilation){.arena = trial->arena, .source = trial->source, .parameters = &trial->parameters, .costs = &trial->costs,
                       .reached = on_the_way, .context = &trial};
    return compile(c, error);
}

/* The ranks with which the schedule cuts the model into as many stages as are asked for; 0: none. */
static int64_t ranks_for_stages(const Comparison *comparison, const Source *source, const char **name)
{
    for (int64_t ranks = 1; ranks <= RANKS_A_STAGE * comparison->options->stages && ranks <= PROGRAM_RANKS_MAX; ranks++) {
        Arena arena = {.exhausted = comparison->arena->exhausted};
        Comparison mine = *comparison;
        Trial trial = {.comparison = &mine, .source = source, .parameters = comparison->sizes, .arena = &arena, .places_only = true};
        Compilation c;
        Error ignored;
        parameters_set_ranks(&trial.parameters, ranks);
        try_schedule(&trial, &c, &ignored);
        arena_free(&arena);
        *name = trial.name ? trial.name : *name;
        if (trial.stages == comparison->options->stages)
            return ranks;
    }
    return 0;
}

/* Whether a require is what it failed on: nothing is wrong with the schedule then. */
static bool refused_by_require(const Trial *trial)
{
    Diagnostics *diagnostics = diag_new(trial->arena, trial->source);
    Ast *tree = source_is_order(trial->source) ? NULL : parse(trial->source, trial->arena, diagnostics);
    return tree && check(tree, trial->arena, diagnostics) && !require_admits(tree, &trial->parameters, values_new(tree, trial->arena));
}

static void fill_row(const Trial *trial, const Compilation *c, CompareRow *row)
{
    const Schedule *schedule = &c->schedule;
    const Memory *given = &trial->comparison->options->memory;
    const uint32_t cut = trial->comparison->cut;
    const Memory sizes = memory_recut(given, cut, trial->stages);
    Timeline times;
    timeline_run(schedule, &c->table, &trial->costs, trial->arena, &times);
    row->ranks = schedule->ranks;
    row->stages = trial->stages;
    row->microbatches = schedule->microbatches;
    row->makespan = times.makespan;
    row->bubble = timeline_bubble(schedule, &times);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankLoad load = rank_load(schedule, &trial->costs, r);
        row->peak = c->plans[r].peak_activations > row->peak ? c->plans[r].peak_activations : row->peak;
        row->copies += c->plans[r].slots[SLOT_WEIGHTS];
        row->messages += load.messages;
        row->bytes += load.bytes_sent;
        row->memory = fmax(row->memory, given->has_sizes ? (double)memory_bytes(&sizes, schedule, c->plans, r) : load.peak_memory);
    }
    row->fits = (!given->limit || row->memory <= (double)given->limit) &&
                (!given->limit_activations || (uint64_t)row->peak * cut <= (uint64_t)given->limit_activations * trial->stages);
    row->copies /= trial->stages;
    row->has_published = published_bubble(schedule, &trial->costs, row->peak, &row->published);
}

/* What the command line leaves open is as in the first schedule. */
static void take_sizes(Comparison *comparison, const CompareRow *row)
{
    if (!comparison->sizes.has_ranks && !comparison->options->stages)
        parameters_set_ranks(&comparison->sizes, row->ranks);
    if (!comparison->sizes.has_microbatches)
        parameters_set_microbatches(&comparison->sizes, row->microbatches);
}

static bool other_sizes(const Comparison *comparison, const CompareRow *row)
{
    const Parameters *sizes = &comparison->sizes;
    return (sizes->has_ranks && sizes->ranks != row->ranks) || (sizes->has_microbatches && sizes->microbatches != row->microbatches) ||
           (comparison->options->stages && comparison->options->stages != row->stages);
}

static Status compare_one(Comparison *comparison, Arena *scratch, CompareRow *row, Error *error)
{
    Source source;
    TRY(source_read(row->path, scratch, &source, error));
    const bool is_order = source_is_order(&source);
    Trial trial = {.comparison = comparison, .source = &source, .arena = scratch};
    if (!is_order)
        trial.parameters = comparison->sizes;
    if (!is_order && comparison->options->stages) {
        const int64_t ranks = ranks_for_stages(comparison, &source, &row->name);
        parameters_set_ranks(&trial.parameters, ranks);
        if (!ranks) {
            row->reason = "no number of ranks makes so many stages of it with so many microbatches";
            return STATUS_OK;
        }
    }
    Compilation c;
    const Status status = try_schedule(&trial, &c, error);
    row->name = trial.name ? trial.name : row->name;
    if (status != STATUS_OK) {
        const bool refused = status == STATUS_BAD_INPUT && refused_by_require(&trial);
        row->reason = refused ? diag_first(c.diagnostics, comparison->arena) : "does not compile";
        if (!refused)
            diag_print(c.diagnostics, stderr);
        return refused ? STATUS_OK : status;
    }
    if (is_order)
        row->name = arena_format(comparison->arena, "%s", c.schedule.name);
    fill_row(&trial, &c, row);
    comparison->splits = comparison->splits || schedule_splits_backward(&c.schedule);
    take_sizes(comparison, row);
    if (other_sizes(comparison, row))
        row->reason = arena_format(comparison->arena, "an order for %s, %s and %s", counted(row->ranks, "rank").text,
                                   counted(row->stages, "stage").text, counted(row->microbatches, "microbatch").text);
    return STATUS_OK;
}

Status compare(const Options *options, Arena *arena, FILE *stream, Error *error)
{
    const Parameters *given = &options->parameters;
    Comparison comparison = {.options = options, .arena = arena, .sizes = *given};
    comparison.sizes.others = NULL;
    comparison.sizes.count = comparison.sizes.capacity = 0;
    comparison.taken = arena_array(arena, given->count, sizeof *comparison.taken);
    CompareRow *rows = arena_array(arena, (size_t)options->input_count, sizeof *rows);
    Status status = STATUS_OK;
    for (int i = 0; i < options->input_count; i++) {
        Arena scratch = {.exhausted = arena->exhausted};
        rows[i].path = rows[i].name = options->inputs[i];
        const Status one = compare_one(&comparison, &scratch, &rows[i], error);
        arena_free(&scratch);
        if (one != STATUS_OK && !rows[i].reason)
            return one;
        status = status == STATUS_OK ? one : status;
    }
    for (uint32_t i = 0; i < given->count; i++)
        if (!comparison.taken[i])
            return error_set(error, STATUS_BAD_USAGE, "-D %s: none of the schedules has such a parameter", given->others[i].name);
    char gap[200];
    if (comparison.splits && costs_halves_gap(&options->costs, gap, sizeof gap))
        fprintf(stderr, "dpc: note: --cost: %s\n", gap);
    const CompareTable table = {.rows = rows, .count = (size_t)options->input_count, .cut = comparison.cut,
                                .memory = &options->memory};
    if (options->json)
        compare_put_json(&table, stream);
    else
        compare_put_text(&table, arena, stream);
    return status;
}
