#include "compiler/order/squeeze.h"

#include "compiler/schedule/slot_squeeze.h"
#include "runtime/base/counted.h"

static bool fits(const Item *item, const Schedule *schedule, const Timeline *times, Diagnostics *diagnostics)
{
    if (!squeeze_has_room(schedule, times)) {
        diag_error(diagnostics, item->span,
                   "too much to squeeze: %s of %.0f slots each; together they can have at most %d",
                   counted(schedule->ranks, "rank").text, times->makespan, SQUEEZE_SLOTS_MAX);
        diag_help(diagnostics, "fewer microbatches need fewer slots");
        return false;
    }
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action->kind != ACTION_B && action->kind != ACTION_U && !action->overlap)
                continue;
            if (action->kind == ACTION_U) {
                diag_error(
                    diagnostics, action->span,
                    "`squeeze` moves passes, and the version of the weights that they use depends on their order");
                diag_note(diagnostics, item->span, "squeezed here");
                diag_help(diagnostics, "remove the `squeeze`; or squeeze without U, and add the U to the order that "
                                       "--emit=csv:FILE.csv writes");
                return false;
            }
            diag_error(diagnostics, action->span, "`squeeze` moves passes of one slot, and %s",
                       action->overlap ? "an F&B takes several" : "a B is two");
            diag_note(diagnostics, item->span, "squeezed here");
            diag_help(diagnostics, action->overlap ? "write the F and the backward pass separately"
                                                   : "write I, and W for the other half");
            return false;
        }
    return true;
}

bool squeeze(const Item *item, Schedule *schedule, PassTable *table, Timeline *times, Arena *arena,
             Diagnostics *diagnostics)
{
    return fits(item, schedule, times, diagnostics) && squeeze_orders(schedule, table, times, arena);
}
