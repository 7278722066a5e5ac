/* The list of the compiler's passes. */

#include "compiler/compile.h"

#include "compiler/lower/lower.h"
#include "compiler/order/csv.h"
#include "compiler/order/expand.h"
#include "compiler/order/order_auto.h"
#include "compiler/order/place.h"
#include "compiler/order/squeeze.h"
#include "compiler/prove/communicate.h"
#include "compiler/prove/legal.h"
#include "compiler/prove/prove.h"
#include "compiler/prove/versions.h"
#include "compiler/tree/check.h"
#include "compiler/tree/parse.h"

/* What a pass that has failed returns: it has said why in a diagnostic. */
#define PASS(call)                   \
    do {                             \
        if (!(call))                 \
            return STATUS_BAD_INPUT; \
    } while (0)

#define REACHED(c, form) TRY((c)->reached ? (c)->reached(c, form) : STATUS_OK)

/* After `reached`, which may say what the costs are. */
static void take_costs(Compilation *c)
{
    c->resolved =
        costs_resolve(c->costs ? c->costs : &costs_unit, c->schedule.pipes[0].stages, c->schedule.recipe, c->arena);
}

/* source → schedule: where every stage lives and what every rank runs */
static Status read_csv(Compilation *c, Error *error)
{
    const Parameters *parameters = c->parameters;
    if (parameters->has_ranks || parameters->has_microbatches || parameters->count)
        return error_set(error, STATUS_BAD_USAGE,
                         "%s: an order has no parameters: its rows are the ranks, its cells the microbatches",
                         c->source->path);
    PASS(csv_read(c->source, c->arena, c->diagnostics, &c->schedule));
    REACHED(c, FORM_SCHEDULE);
    take_costs(c);
    return STATUS_OK;
}

static Status read_schedule(Compilation *c, Error *error)
{
    REACHED(c, FORM_TOKENS);
    PASS(c->tree = parse(c->source, c->arena, c->diagnostics));
    REACHED(c, FORM_TREE);
    PASS(check(c->tree, c->arena, c->diagnostics));
    TRY(parameters_check(c->tree, c->parameters, "-D", error));
    PASS(place(c->tree, c->parameters, c->arena, c->diagnostics, &c->schedule));
    REACHED(c, FORM_SCHEDULE);
    take_costs(c);
    if (c->tree->order)
        PASS(order_auto(c->tree, c->parameters, &c->resolved, c->search, c->arena, c->diagnostics, &c->schedule,
                        &c->found));
    else
        PASS(expand(c->tree, c->parameters, c->arena, c->diagnostics, &c->schedule));
    return STATUS_OK;
}

/* schedule → proven schedule, messages included */
static Status prove(Compilation *c)
{
    REACHED(c, FORM_ORDER);
    PASS(legal(&c->schedule, c->arena, c->diagnostics, &c->table));
    PASS(versions_check(&c->schedule, &c->table, c->arena, c->diagnostics));
    if (!timeline_run(&c->schedule, &c->table, &costs_unit, c->arena, &c->unit_times)) {
        prove_report_circle(&c->schedule, &c->table, &c->unit_times, c->arena, c->diagnostics);
        return STATUS_BAD_INPUT;
    }
    if (c->tree && c->tree->squeeze)
        PASS(squeeze(c->tree->squeeze, &c->schedule, &c->table, &c->unit_times, c->arena, c->diagnostics));
    if (!c->schedule.has_messages)
        communicate(&c->schedule, &c->table, c->arena);
    REACHED(c, FORM_COMMS);
    PASS(prove_messages(&c->schedule, &c->table, c->arena, c->diagnostics));
    return STATUS_OK;
}

/* proven schedule → program */
static Status translate(Compilation *c, Error *error)
{
    c->plans = arena_array(c->arena, c->schedule.ranks, sizeof *c->plans);
    for (uint32_t r = 0; r < c->schedule.ranks; r++)
        PASS(plan_rank(&c->schedule, r, c->arena, c->diagnostics, &c->plans[r]));
    if (c->memory)
        PASS(memory_check(c->memory, &c->schedule, c->plans, c->diagnostics));
    REACHED(c, FORM_PLAN);
    c->program = lower(&c->schedule, c->plans, c->source, c->arena);
    Status status = program_verify(c->program, error);
    if (status != STATUS_OK) { /* our own mistake, and better found here than by dprun */
        error_prefix(error, "internal error, the program that was made does not pass its verification: ");
        return status;
    }
    REACHED(c, FORM_PROGRAM);
    return STATUS_OK;
}

Status compile(Compilation *c, Error *error)
{
    c->diagnostics = diag_new(c->arena, c->source);
    TRY(source_is_order(c->source) ? read_csv(c, error) : read_schedule(c, error));
    TRY(prove(c));
    return translate(c, error);
}
