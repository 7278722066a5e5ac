#include "compiler/order/squeeze.h"

#include "compiler/schedule/slot_squeeze.h"
#include "runtime/base/counted.h"

static bool fits(const Item *item, const Schedule *schedule, const Timeline *times, Diagnostics *diagnostics)
{
    if (!squeeze_has_room(schedule, times)) {
        diag_error(diagnostics, item->span,
                   "too much to squeeze: %s of %.0f slots each; %d are what all together can have",
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
                diag_error(diagnostics, action->span,
                           "`squeeze` moves passes, and which version of the weights they use goes by their order");
                diag_note(diagnostics, item->span, "squeezed here");
                diag_help(diagnostics, "leave the `squeeze` out; or squeeze without U, and write the U into the order "
                                       "that --emit=csv:FILE.csv makes");
                return false;
            }
            diag_error(diagnostics, action->span, "`squeeze` moves passes of one slot, and %s",
                       action->overlap ? "an F&B is several" : "a B is two");
            diag_note(diagnostics, item->span, "squeezed here");
            diag_help(diagnostics, action->overlap ? "write the F and the backward pass apart"
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
