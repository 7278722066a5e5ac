#include "compiler/schedule/critical_path.h"

/* Replaces *at by the pass that this pass or F&B waited for: the pass before it on its rank, or the pass that computed
   the last of its inputs to arrive. A U of a stage with copies on several ranks may have waited for the last pass
   before the U on the rank that reached its U last. False: it waited for no pass. */
static bool step_back(const Schedule *schedule, const PassTable *table, const Timeline *times, CriticalPass *at)
{
    const Order *order = &schedule->orders[at->rank];
    uint32_t first = at->position;
    if (first > 0 && order->actions[first - 1].overlap)
        first--;
    double latest = -1;
    Dependence needed, found = {0, 0};
    const uint32_t halves = order->actions[first].overlap ? 2 : 1;
    for (uint32_t i = first; i < first + halves; i++) {
        const double arrival = timeline_arrival(schedule, table, times, at->rank, &order->actions[i], &needed);
        if (arrival <= latest)
            continue;
        latest = arrival;
        found = needed;
    }
    const uint32_t before = timeline_before(order, first);
    if (before != POSITION_NONE && times->end[at->rank][before] >= latest) {
        at->position = before;
        return true;
    }
    if (latest >= 0)
        *at = (CriticalPass){found.rank, found.position};
    return latest >= 0;
}

uint32_t critical_path(const Schedule *schedule, const PassTable *table, const Timeline *times, Arena *arena,
                       CriticalPass **path)
{
    CriticalPass at = {0, POSITION_NONE};
    double latest = -1;
    uint32_t count = 0, most = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const uint32_t last = timeline_before(&schedule->orders[r], schedule->orders[r].count);
        if (last != POSITION_NONE && times->end[r][last] > latest) {
            latest = times->end[r][last];
            at = (CriticalPass){r, last};
        }
        most += schedule->orders[r].count;
    }
    CriticalPass *passes = arena_array(arena, most, sizeof *passes);
    if (at.position != POSITION_NONE)
        do
            passes[most - ++count] = at;
        while (step_back(schedule, table, times, &at));
    *path = passes + (most - count);
    return count;
}
