#include "compiler/prove/deadlock.h"

#include "compiler/prove/prove.h"

enum { TEXT = 48 };

/* The shortest cycle through `first`: its ranks in order into `circle`. 0: there is none. */
static uint32_t circle_through(const Waits *waits, uint32_t ranks, uint32_t first, uint32_t *queue, uint32_t *from,
                               uint32_t *circle)
{
    uint32_t head = 0, tail = 0;
    for (uint32_t r = 0; r < ranks; r++)
        from[r] = UINT32_MAX;
    queue[tail++] = first;
    while (head < tail) {
        const uint32_t rank = queue[head++];
        for (uint32_t i = 0; i < waits[rank].count; i++) {
            const uint32_t next = waits[rank].on[i].rank;
            if (next == first) {
                uint32_t length = 1;
                for (uint32_t r = rank; r != first; r = from[r])
                    length++;
                uint32_t place = length;
                for (uint32_t r = rank; place > 1; r = from[r])
                    circle[--place] = r;
                circle[0] = first;
                return length;
            }
            if (from[next] == UINT32_MAX && waits[next].count) {
                from[next] = rank;
                queue[tail++] = next;
            }
        }
    }
    return 0;
}

void deadlock_report(const Schedule *schedule, const Waits *waits, Arena *arena, Diagnostics *diagnostics)
{
    const uint32_t ranks = schedule->ranks;
    uint32_t *queue = arena_array(arena, ranks, sizeof *queue), *from = arena_array(arena, ranks, sizeof *from);
    uint32_t *circle = arena_array(arena, ranks, sizeof *circle), *best = arena_array(arena, ranks, sizeof *best);
    uint32_t best_length = 0;
    for (uint32_t r = 0; r < ranks && best_length != 1; r++) {
        const uint32_t length = waits[r].count ? circle_through(waits, ranks, r, queue, from, circle) : 0;
        if (length && (!best_length || length < best_length)) {
            uint32_t *shorter = circle;
            circle = best;
            best = shorter;
            best_length = length;
        }
    }
    for (uint32_t i = 0; i < best_length; i++) {
        const uint32_t rank = best[i], next = best[(i + 1) % best_length];
        const Waits *wait = &waits[rank];
        const Wait *on = wait->on;
        while (on->rank != next)
            on++;
        const Action *halted = &schedule->orders[rank].actions[on->halted_at];
        char here[TEXT], there[TEXT];
        action_text(schedule, halted, here, sizeof here);
        action_text(schedule, &schedule->orders[on->rank].actions[on->position], there, sizeof there);
        if (best_length == 1)
            diag_error(diagnostics, halted->span,
                       "rank %u waits for itself: %s needs %s, which comes later in its order", rank, here, there);
        else if (i == 0)
            diag_error(diagnostics, halted->span,
                       "deadlock: %u ranks wait for each other: rank %u at %s waits for %s of rank %u", best_length,
                       rank, here, there, on->rank);
        else
            diag_note(diagnostics, halted->span, "rank %u at %s waits for %s of rank %u", rank, here, there, on->rank);
    }
}

Waits deadlock_waits_of_update(const Schedule *schedule, const PassTable *table, const uint32_t *position,
                               const Action *update, uint32_t halted_at, Arena *arena)
{
    Waits waits = {.on = arena_array(arena, schedule->copies[update->stage].count, sizeof *waits.on)};
    Dependence there;
    for (uint32_t i = 0; pass_meets(schedule, table, update, i, &there); i++)
        if (position[there.rank] < there.position)
            waits.on[waits.count++] = (Wait){there.rank, there.position, halted_at};
    return waits;
}

/* What each rank waits for where the passes of the orders cannot go on. */
static Waits *waits_of_passes(const Schedule *schedule, const PassTable *table, const uint32_t *at, Arena *arena)
{
    Waits *waits = arena_array(arena, schedule->ranks, sizeof *waits);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        uint32_t position = at[r];
        bool more = position < order->count;
        if (more && order->actions[position].kind == ACTION_U) {
            waits[r] = deadlock_waits_of_update(schedule, table, at, &order->actions[position], position, arena);
            continue;
        }
        waits[r].on = arena_array(arena, 2, sizeof *waits[r].on);
        while (more) {
            const Action *pass = &order->actions[position];
            Dependence needed;
            if (!action_is_message(pass)) {
                if (pass_dependence(schedule, table, pass, &needed) && at[needed.rank] <= needed.position)
                    waits[r].on[waits[r].count++] = (Wait){needed.rank, needed.position, position};
                more = pass->overlap;
            }
            more = more && ++position < order->count;
        }
    }
    return waits;
}

bool prove_order(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics,
                 Timeline *times)
{
    if (timeline_run(schedule, table, &costs_unit, arena, times))
        return true;
    deadlock_report(schedule, waits_of_passes(schedule, table, times->position, arena), arena, diagnostics);
    diag_help(diagnostics, "one of these must come earlier in its rank's order");
    return false;
}
