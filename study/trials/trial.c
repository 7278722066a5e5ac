#include "study/trials/trial.h"

#include "compiler/compile.h"
#include "compiler/schedule/rank_load.h"
#include "base/counted.h"

#include <math.h>
#include <string.h>

/* One compilation. */
typedef struct Attempt {
    const Trial *trial;
    Parameters parameters;
    Costs costs;      /* the trial's costs, with model_stages set to the number of stages that they are for */
    bool places_only; /* the compilation ends after the placement, which gives the sizes */
    TrialSizes sizes; /* sizes of the schedule; all 0: the compilation did not come as far as the placement */
    Compilation compilation;
} Attempt;

Status trial_check_replicas(uint32_t replicas, const Costs *costs, Error *error)
{
    if (replicas && !costs_have(costs, COST_GRADIENTS))
        return error_set(error, STATUS_BAD_USAGE,
                         "%s needs the size of the gradients that the replicas sum: %sgradients=N, the bytes of a "
                         "stage's gradient",
                         front_name(costs->front_end, SET_REPLICAS), front_before(costs->front_end, SET_COST));
    return STATUS_OK;
}

uint32_t trial_costs_stages(const Costs *costs, uint32_t parts, bool *assumed)
{
    uint32_t named = 0;
    bool exceptions = false;
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            if (costs->stages[s][cost] >= 0) {
                named = s + 1;
                exceptions = exceptions || costs->said & 1u << cost;
            }
    *assumed = costs->model_stages <= 0 && named > 0 && (!exceptions || named > parts);
    return *assumed ? named : costs->model_stages > 0 ? (uint32_t)costs->model_stages : parts;
}

static void take_optional(Attempt *attempt, const Ast *tree)
{
    const Parameters *optional = attempt->trial->optional, *own = &attempt->trial->parameters;
    for (uint32_t i = 0; optional && i < optional->count; i++)
        if (parameter_item(tree, optional->others[i].name))
            parameters_set(&attempt->parameters, attempt->compilation.arena, optional->others[i].name,
                           optional->others[i].value);
    /* the trial's own -D follow the optional ones and override them: the last value of a name counts */
    for (uint32_t i = 0; i < own->count; i++)
        parameters_set(&attempt->parameters, attempt->compilation.arena, own->others[i].name, own->others[i].value);
}

/* Returns N if --slot-bytes, and costs that do not give or suggest a number of stages, are for 1/N of the model. */
static uint32_t parts_of(const Attempt *attempt)
{
    return attempt->trial->parts ? attempt->trial->parts : attempt->sizes.stages;
}

/* Whether the schedule has more stages than the model of the costs has layers: dprun could not cut the model so. */
static bool has_too_few_layers(const Attempt *attempt)
{
    const double layers = attempt->trial->costs->model_layers;
    return layers >= 1 && layers < attempt->sizes.stages;
}

static Status on_the_way(const Compilation *c, Form form)
{
    Attempt *attempt = *(Attempt *const *)c->context;
    if (form == FORM_TREE)
        take_optional(attempt, c->tree);
    if (form != FORM_SCHEDULE)
        return STATUS_OK;
    attempt->sizes = (TrialSizes){c->schedule.ranks, c->schedule.pipes[0].stages, c->schedule.microbatches};
    if (attempt->places_only || has_too_few_layers(attempt))
        return STATUS_BAD_INPUT; /* ends the compilation: what follows the placement is not needed */
    bool assumed;
    attempt->costs = *attempt->trial->costs;
    attempt->costs.model_stages = trial_costs_stages(attempt->trial->costs, parts_of(attempt), &assumed);
    return STATUS_OK;
}

/* Compiles the trial's schedule with `ranks` ranks; 0: with the number of ranks in the trial's parameters or, if they
   have none, the schedule's default. An order (.csv) keeps its own number. */
static Status attempt_ranks(Attempt *attempt, const Trial *trial, int64_t ranks, Arena *arena, Error *error)
{
    attempt->trial = trial;
    attempt->parameters = trial->parameters;
    /* take_optional sets the other parameters later: only the tree tells which of them the schedule has */
    attempt->parameters.others = NULL;
    attempt->parameters.count = attempt->parameters.capacity = 0;
    if (ranks)
        parameters_set_ranks(&attempt->parameters, ranks);
    if (source_is_order(trial->source))
        attempt->parameters = (Parameters){.others = trial->parameters.others, .count = trial->parameters.count};
    attempt->compilation = (Compilation){.arena = arena,
                                         .source = trial->source,
                                         .parameters = &attempt->parameters,
                                         .costs = &attempt->costs,
                                         .search = trial->search,
                                         .reached = on_the_way,
                                         .context = &attempt};
    return compile(&attempt->compilation, error);
}

static TrialSizes sizes_with(const Trial *trial, int64_t ranks, Arena *arena)
{
    Arena *const scratch = arena_scratch(arena);
    Attempt attempt = {.places_only = true};
    Error ignored;
    attempt_ranks(&attempt, trial, ranks, scratch, &ignored);
    arena_free(scratch);
    return attempt.sizes;
}

/* The largest number of ranks that is tried to cut the model into trial->stages stages. */
static uint32_t most_ranks(const Trial *trial)
{
    enum { RANKS_A_STAGE = 4 };
    return trial->stages < PROGRAM_RANKS_MAX / RANKS_A_STAGE ? RANKS_A_STAGE * trial->stages : PROGRAM_RANKS_MAX;
}

/* The least number of ranks with which the schedule cuts the model into trial->stages stages; 0: none of the numbers
   tried does. */
static int64_t ranks_for_stages(const Trial *trial, Arena *arena)
{
    for (int64_t ranks = 1; ranks <= most_ranks(trial); ranks++)
        if (sizes_with(trial, ranks, arena).stages == trial->stages)
            return ranks;
    return 0;
}

TrialSizes trial_sizes(const Trial *trial, Arena *arena)
{
    if (!trial->stages || source_is_order(trial->source))
        return sizes_with(trial, 0, arena);
    const int64_t ranks = ranks_for_stages(trial, arena);
    return ranks ? sizes_with(trial, ranks, arena) : (TrialSizes){0, 0, 0};
}

static Status fill_reason(const Attempt *attempt, Status status, Arena *arena, CompareRow *row)
{
    const Diagnostics *diagnostics = attempt->compilation.diagnostics;
    if (status != STATUS_BAD_INPUT)
        return status;
    if (diag_is_refusal(diagnostics)) { /* the schedule is right, but refuses the sizes or parameters */
        row->reason = diag_first(diagnostics, arena);
        return STATUS_OK;
    }
    if (has_too_few_layers(attempt)) {
        row->reason = arena_format(arena, "has %u stages, more than the %g layers of the costs' model",
                                   attempt->sizes.stages, attempt->trial->costs->model_layers);
        return STATUS_OK;
    }
    row->reason = "does not compile";
    row->diagnostics = diag_text(diagnostics, arena);
    return status;
}

static void fill_identity(const Attempt *attempt, Arena *arena, CompareRow *row)
{
    const Compilation *c = &attempt->compilation;
    const Parameters *taken = &attempt->parameters;
    const char *const name = c->tree ? c->tree->schedule : c->schedule.name;
    row->path = row->name = arena_format(arena, "%s", attempt->trial->source->path);
    if (name)
        row->name = arena_format(arena, "%s", name);
    Parameter *parameters = arena_array(arena, taken->count, sizeof *parameters);
    for (uint32_t i = 0; i < taken->count; i++) {
        uint32_t at = 0;
        while (at < row->parameter_count && strcmp(parameters[at].name, taken->others[i].name) != 0)
            at++;
        row->parameter_count += at == row->parameter_count;
        parameters[at] = (Parameter){arena_format(arena, "%s", taken->others[i].name), taken->others[i].value};
    }
    row->parameters = parameters;
}

static void fill_figures(const Attempt *attempt, CompareRow *row)
{
    const Compilation *c = &attempt->compilation;
    const Schedule *schedule = &c->schedule;
    const Memory *given = attempt->trial->memory;
    const uint32_t parts = parts_of(attempt), stages = attempt->sizes.stages;
    const Memory sizes = memory_recut(given, parts, stages);
    Timeline times;
    timeline_run(schedule, &c->table, &c->resolved, c->arena, &times);
    row->ranks = schedule->ranks;
    row->stages = stages;
    row->microbatches = schedule->microbatches;
    row->makespan = times.makespan;
    if (attempt->trial->replicas)
        row->sums = gradient_sums(schedule, &c->table, &times, attempt->trial->replicas, c->arena);
    row->makespan += row->sums.added;
    row->bubble = timeline_bubble(schedule, &times);
    row->causes = timeline_bubble_causes(schedule, &c->table, &times, c->arena);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankLoad load = rank_load(schedule, &c->resolved, r);
        const RankProgram *rank = &c->program->ranks[r];
        row->peak = rank->peak_activations > row->peak ? rank->peak_activations : row->peak;
        row->copies += rank->slots[SLOT_WEIGHTS];
        row->messages += load.messages;
        row->bytes += load.bytes_sent;
        row->memory = fmax(row->memory, given->given ? (double)memory_bytes(&sizes, rank) : load.peak_memory);
    }
    row->missing = given->given ? memory_missing(given, c->program) : 0;
    const bool exceeds =
        (given->limit && row->memory > (double)given->limit) ||
        (given->limit_activations && (uint64_t)row->peak * parts > (uint64_t)given->limit_activations * stages);
    row->fit = exceeds ? EXCEEDS : given->limit && row->missing ? FIT_UNKNOWN : FITS;
    row->gap = gap_of(schedule, &c->resolved, times.makespan, c->limits.most ? &c->limits : NULL,
                      row->fit == FITS ? &sizes : NULL, c->arena);
    row->copies /= stages;
    row->derived = (schedule_costs_used(schedule) | (attempt->trial->replicas ? 1u << COST_GRADIENTS : 0)) &
                   costs_derived(&c->resolved);
    row->asynchronous = schedule->asynchronous;
    row->forward_only = schedule->forward_only;
    row->is_order = source_is_order(c->source);
    row->searched = c->tree && c->tree->order;
    row->by_costs = c->tree && (c->tree->cost || row->searched || ast_searches_recipe(c->tree));
    row->has_published = published_bubble(schedule, &c->resolved, row->peak, &row->published);
}

/* Refuses a .csv, whose sizes are fixed, if the trial asks for other sizes. */
static void refuse_other_sizes(const Trial *trial, Arena *arena, CompareRow *row)
{
    const Parameters *wanted = &trial->parameters;
    if ((wanted->has_ranks && wanted->ranks != row->ranks) ||
        (wanted->has_microbatches && wanted->microbatches != row->microbatches) ||
        (trial->stages && trial->stages != row->stages))
        row->reason = arena_format(arena, "an order for %s, %s and %s", counted(row->ranks, "rank").text,
                                   counted(row->stages, "stage").text, counted(row->microbatches, "microbatch").text);
}

static Status fill_row(const Trial *trial, Arena *scratch, Arena *arena, CompareRow *row, Error *error)
{
    Attempt attempt = {.trial = trial};
    const bool searches_ranks = trial->stages && !source_is_order(trial->source);
    const int64_t ranks = searches_ranks ? ranks_for_stages(trial, scratch) : 0;
    attempt.places_only = searches_ranks && !ranks;
    const Status status = attempt_ranks(&attempt, trial, ranks, scratch, error);
    fill_identity(&attempt, arena, row);
    if (attempt.places_only && attempt.sizes.stages) {
        row->reason =
            arena_format(arena, "no number of ranks up to %u makes so many stages of it with so many microbatches",
                         most_ranks(trial));
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        return fill_reason(&attempt, status, arena, row);
    fill_figures(&attempt, row);
    refuse_other_sizes(trial, arena, row);
    return STATUS_OK;
}

Status trial_run(const Trial *trial, Arena *arena, CompareRow *row, Error *error)
{
    Arena *const scratch = arena_scratch(arena);
    *row = (CompareRow){.path = trial->source->path, .name = trial->source->path};
    const Status status = fill_row(trial, scratch, arena, row, error);
    arena_free(scratch);
    return status;
}
