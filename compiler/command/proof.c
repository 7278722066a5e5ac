#include "compiler/command/proof.h"

#include "compiler/lower/gap.h"
#include "compiler/output/emit.h"
#include "compiler/search/solver.h"
#include "base/text_stream.h"

#include <stdlib.h>

static bool has_inputs(const Schedule *schedule)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++)
            if (schedule->orders[r].actions[i].overlap && schedule->orders[r].actions[i + 1].kind == ACTION_I)
                return true;
    return false;
}

static Status check(const Compilation *c, Error *error)
{
    if (!solver_exists())
        return error_set(
            error, STATUS_BAD_USAGE,
            "--prove needs the SAT solver CaDiCaL, which was not there when this dpc was built; install it "
            "(Debian: libcadical-dev) and build dpc again");
    if (c->schedule.asynchronous)
        return error_set(error, STATUS_BAD_USAGE,
                         "--prove: %s updates weights within the step, and the solver knows only orders without "
                         "updates",
                         c->schedule.name);
    if (c->schedule.forward_only)
        return error_set(error, STATUS_BAD_USAGE,
                         "--prove: %s has no backward passes, and the solver knows only orders with them; without "
                         "--prove dpc prints the gap to a lower bound",
                         c->schedule.name);
    if (recipes_put_off(&c->schedule.recipes))
        return error_set(
            error, STATUS_BAD_USAGE,
            "--prove: the recipe of %s computes weight gradients after its F&B, and the solver knows only "
            "F&Bs that send their results at their end; without --prove dpc prints the gap to a lower bound",
            c->schedule.name);
    return STATUS_OK;
}

/* Compiles the order that the solver found, with all of dpc's proofs. NULL: the order is not shorter, or it does not
   pass the proofs: it may exceed a limit in bytes, because the solver counts only activations. */
static const Schedule *checked(const Compilation *c, const Schedule *found, double *makespan)
{
    TextStream text;
    Error ignored = {""};
    emit_csv(found, false, text_stream_open(&text, c->arena));
    char *const order = text_stream_close(&text);
    Source *source = arena_allocate(c->arena, sizeof *source);
    Compilation *again = arena_allocate(c->arena, sizeof *again);
    static const Parameters none;
    *again = (Compilation){.arena = c->arena, .source = source, .parameters = &none, .memory = c->memory};
    Timeline times;
    Status status = source_of_text("found.csv", order, text.length, c->arena, source, &ignored);
    status = status == STATUS_OK ? compile(again, &ignored) : status;
    if (status != STATUS_OK || !timeline_run(&again->schedule, &again->table, &c->resolved, c->arena, &times) ||
        times.makespan >= *makespan * (1 - 1e-9))
        return NULL;
    *makespan = times.makespan;
    return &again->schedule;
}

Status proof_find(const Compilation *c, double makespan, double bound, const OptimumControl *control, Proof *proof,
                  Error *error)
{
    MemoryLimits limits[GAP_LIMITS];
    TRY(check(c, error));
    const OptimumTask task = {
        .schedule = &c->schedule,
        .costs = &c->resolved,
        .limits = limits,
        .limit_count = gap_limits(&c->schedule, c->limits.most ? &c->limits : NULL, c->memory, c->arena, limits),
        .overlap = true,
        .with_inputs = has_inputs(&c->schedule)};
    const Optimum optimum = optimum_find(&task, makespan, bound, control, (Span){0, 0}, c->arena);
    *proof = (Proof){.proven = {.bound = optimum.bound, .shortest = makespan},
                     .with_inputs = task.with_inputs,
                     .too_large = optimum.too_large};
    if (optimum.found) {
        Schedule found = c->schedule;
        found.orders = optimum.orders;
        found.has_messages = false;
        proof->found = checked(c, &found, &proof->proven.shortest);
    }
    return STATUS_OK;
}

const char *proof_text(const Proof *proof, const Compilation *c)
{
    const char *unit = costs_unit_text(&c->resolved);
    const char *order = proof->with_inputs ? "order of F, B, I, W, F&B and F&I in this memory"
                                           : "order of F, B, I, W and F&B in this memory";
    const Gap gap = gap_to(proof->proven.shortest, proof->proven.bound);
    const char *const left = arena_format(c->arena, "%g%s (gap %.1f %%)", gap.bound, unit, 100 * gap.gap);
    const char *const takes = arena_format(c->arena, "%g%s", proof->proven.shortest, unit);
    if (proof->found && gap.gap <= 0)
        return arena_format(c->arena, "not optimal: the shortest %s takes %s", order, takes);
    if (proof->found)
        return arena_format(c->arena, "not optimal: an %s takes %s, and none takes less than %s", order, takes, left);
    if (gap.gap <= 0)
        return arena_format(c->arena, "optimal: no %s is shorter", order);
    if (proof->too_large)
        return arena_format(c->arena, "too large for the solver; no %s takes less than %s", order, left);
    return arena_format(c->arena, "open: the solver found no shorter order; no %s takes less than %s", order, left);
}
