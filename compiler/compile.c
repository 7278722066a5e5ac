/* The compiler: runs its passes one after the other. */

#include "compiler/compile.h"

#include "compiler/lower/lower.h"
#include "compiler/order/communicate.h"
#include "compiler/order/cost_values.h"
#include "compiler/order/csv.h"
#include "compiler/order/expand.h"
#include "compiler/order/order_auto.h"
#include "compiler/order/place.h"
#include "compiler/order/put_off.h"
#include "compiler/order/recipe_auto.h"
#include "compiler/order/require.h"
#include "compiler/order/squeeze.h"
#include "compiler/prove/prove.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"

/* Returns after a pass that failed; the pass has reported why in a diagnostic. */
#define PASS(call)                   \
    do {                             \
        if (!(call))                 \
            return STATUS_BAD_INPUT; \
    } while (0)

#define REACHED(c, form) TRY((c)->reached ? (c)->reached(c, form) : STATUS_OK)

/* Reports sizes and parameters given for a .csv, which takes none. */
static Status check_no_parameters(const Compilation *c, Error *error)
{
    const Parameters *parameters = c->parameters;
    if (!parameters->has_ranks && !parameters->has_microbatches && !parameters->count)
        return STATUS_OK;
    return error_set(
        error, STATUS_BAD_USAGE,
        "%s: an order takes no sizes and no parameters: its rows are the ranks, its cells name the microbatches",
        c->source->path);
}

/* Notes in schedule->chosen the values that the file computes for parameters from the costs. */
static void take_chosen(Compilation *c)
{
    Schedule *const schedule = &c->schedule;
    int64_t *values = values_new(c->tree, c->parameters, c->arena);
    Fault fault;
    values_for_all(c->tree, c->parameters, values, &fault); /* succeeds, as in require_with_costs before */
    for (const Item *item = c->tree->items; item; item = item->next) {
        const bool depends = item->kind == ITEM_PARAM && item->value->depends & DEPENDS_ON_COSTS;
        if (!depends || parameters_has(c->parameters, item->name.symbol->text))
            continue;
        schedule->chosen = arena_extend(c->arena, schedule->chosen, schedule->chosen_count, sizeof *schedule->chosen);
        schedule->chosen[schedule->chosen_count++] = (ChosenParameter){item->name.symbol->text, values[item->slot]};
    }
}

/* Computes the values of cost(), and checks the requires that use them. */
static bool take_costs(Compilation *c)
{
    Parameters *known = arena_allocate(c->arena, sizeof *known);
    *known = *c->parameters;
    c->parameters = known;
    if (!cost_values(c->tree, &c->schedule, &c->resolved, c->diagnostics, known) ||
        !require_with_costs(c->tree, known, c->arena, c->diagnostics))
        return false;
    take_chosen(c);
    return true;
}

Status compile_order(Compilation *c, Error *error)
{
    Arena *const arena = c->arena;
    Diagnostics *const diagnostics = c->diagnostics = diag_new(arena, c->source);
    Schedule *const schedule = &c->schedule;
    PassTable *const table = &c->table;

    /* source → schedule: the rank of each stage, and the passes of each rank */
    if (source_is_order(c->source)) {
        TRY(check_no_parameters(c, error));
        PASS(csv_read(c->source, arena, diagnostics, schedule));
    } else {
        REACHED(c, FORM_TOKENS);
        PASS(c->tree = parse(c->source, arena, diagnostics));
        REACHED(c, FORM_TREE);
        PASS(check(c->tree, arena, diagnostics));
        TRY(parameters_check(c->tree, c->parameters, NULL, error));
        PASS(place(c->tree, c->parameters, arena, diagnostics, schedule));
    }
    REACHED(c, FORM_SCHEDULE); /* in this call of c->reached the caller may still change *c->costs */
    const Costs *const costs = c->costs ? c->costs : &costs_unit;
    if (ast_searches_recipe(c->tree))
        PASS(recipe_auto(c->tree->recipe, costs, diagnostics, schedule, &c->recipe_found));
    c->resolved = costs_resolve(costs, schedule->pipes[0].stages, &schedule->recipes, arena);
    if (c->tree && c->tree->cost)
        PASS(take_costs(c));
    if (c->tree && c->tree->order)
        PASS(order_auto(c->tree, c->parameters, &c->resolved, c->search, arena, diagnostics, schedule, &c->found,
                        &c->limits));
    else if (c->tree)
        PASS(expand(c->tree, c->parameters, arena, diagnostics, schedule));
    schedule->forward_only = schedule_runs_forward_only(schedule);
    REACHED(c, FORM_ORDER);

    /* schedule → the same schedule with its messages, proven correct */
    PASS(prove_passes(schedule, arena, diagnostics, table));
    copies_find(schedule, table, arena);
    PASS(prove_versions(schedule, table, arena, diagnostics));
    PASS(prove_order(schedule, table, arena, diagnostics, &c->unit_times));
    if (c->tree && c->tree->squeeze)
        PASS(squeeze(c->tree, c->parameters, schedule, table, &c->unit_times, arena, diagnostics));
    if (!schedule->has_messages) {
        put_off(schedule, table, arena);
        communicate(schedule, table, arena);
        put_off_after_sends(schedule, table);
    }
    REACHED(c, FORM_COMMS);
    PASS(prove_messages(schedule, table, arena, diagnostics));
    return STATUS_OK;
}

Status compile(Compilation *c, Error *error)
{
    TRY(compile_order(c, error));
    Arena *const arena = c->arena;
    Diagnostics *const diagnostics = c->diagnostics;
    Schedule *const schedule = &c->schedule;
    PassTable *const table = &c->table;
    PASS(prove_channels(schedule, table, arena, diagnostics));
    if (schedule->has_messages)
        passes_take_sends(schedule, table, arena);

    /* proven schedule → program */
    PASS(c->program = lower(schedule, c->source, arena, diagnostics));
    const Status proven = prove_program(schedule, table, c->program, arena, diagnostics, error);
    if (proven == STATUS_NO_MEMORY)
        arena_exhausted(arena);
    TRY(proven);
    if (c->memory)
        PASS(memory_check(c->memory, schedule, c->program, diagnostics));
    REACHED(c, FORM_PLAN);
    return STATUS_OK;
}

double compilation_prompt_makespan(const Compilation *c)
{
    Timeline times;
    PassTable table = c->table;
    table.forward_sent = table.forward;
    table.backward_sent = table.backward;
    timeline_run(&c->schedule, &table, &c->resolved, c->arena, &times);
    return times.makespan;
}

Gap compilation_gap(const Compilation *c, double makespan)
{
    return gap_of(&c->schedule, &c->resolved, makespan, c->limits.most ? &c->limits : NULL, c->memory, c->arena);
}
