#include "compiler/order/squeeze.h"

#include "compiler/schedule/slot_squeeze.h"
#include "base/counted.h"

static bool fits(const Item *item, const Schedule *schedule, const Timeline *times, Diagnostics *diagnostics)
{
    if (!squeeze_has_room(schedule, times)) {
        diag_error(diagnostics, item->span,
                   "too long for `squeeze`: %s of %.0f time slots each (one for each F, I or W); all ranks together "
                   "can have at most %d",
                   counted(schedule->ranks, "rank").text, times->makespan, SQUEEZE_SLOTS_MAX);
        diag_help(diagnostics, "fewer ranks, stages or microbatches need fewer time slots");
        return false;
    }
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->kind != ACTION_B && action->kind != ACTION_U && !action->overlap)
                continue;
            if (action->kind == ACTION_U) {
                diag_error(diagnostics, action->span,
                           "`squeeze` cannot be used with U: it moves passes, and their order decides which version of "
                           "the weights they use");
                diag_note(diagnostics, item->span, "squeezed here");
                diag_help(diagnostics, "remove the `squeeze`; or squeeze without U, and add the U to the order that "
                                       "--emit=csv:FILE.csv writes");
                return false;
            }
            diag_error(diagnostics, action->span, "`squeeze` moves only passes that take one time slot (F, I, W); %s",
                       action->overlap ? "an F&B or F&F takes several" : "a B takes two");
            diag_note(diagnostics, item->span, "squeezed here");
            diag_help(diagnostics, action->overlap ? "write the two passes separately, without `&` and `overlap`"
                                                   : "write the B as an I and a W");
            return false;
        }
    return true;
}

/* Sets `*value` to the value of the condition after `squeeze`; 1: there is no condition. False, with a diagnostic: it
   has no value. */
static bool evaluate_condition(const Ast *ast, const Parameters *parameters, int64_t *value, Arena *arena,
                               Diagnostics *diagnostics)
{
    const Expression *const condition = ast->squeeze->value;
    int64_t *values = values_new(ast, parameters, arena);
    Fault fault;
    *value = 1;
    if (!condition || (values_for_all(ast, parameters, values, &fault) && evaluate(condition, values, value, &fault)))
        return true;
    diag_error(diagnostics, fault.expression->span, "%s", fault_text(&fault, arena));
    return false;
}

bool squeeze(const Ast *ast, const Parameters *parameters, Schedule *schedule, PassTable *table, Timeline *times,
             Arena *arena, Diagnostics *diagnostics)
{
    const Item *item = ast->squeeze;
    int64_t wanted;
    if (!evaluate_condition(ast, parameters, &wanted, arena, diagnostics))
        return false;
    if (!wanted)
        return true;
    return fits(item, schedule, times, diagnostics) && squeeze_orders(schedule, table, times, arena);
}
