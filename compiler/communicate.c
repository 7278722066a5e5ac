#include "compiler/communicate.h"

#include <stdlib.h>

/* A message as one of its ranks sees it. Time and producer make the same key at both ends. */
typedef struct Event {
    double time; /* the end of the pass that makes it */
    uint32_t producer_rank, producer_position;
    Action action;
} Event;

static int by_time(const void *left, const void *right)
{
    const Event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->producer_rank != b->producer_rank)
        return a->producer_rank < b->producer_rank ? -1 : 1;
    return (a->producer_position > b->producer_position) - (a->producer_position < b->producer_position);
}

/* Where the product of a pass goes: the F of the next stage, the backward of the stage before. */
static bool consumer_stage(const PlacedPipe *pipe, const Action *pass, uint32_t *stage)
{
    if (pass->kind == ACTION_F && pass->stage + 1u < pipe->stages)
        *stage = pass->stage + 1u;
    else if ((pass->kind == ACTION_B || pass->kind == ACTION_I) && pass->stage > 0)
        *stage = pass->stage - 1u;
    else
        return false;
    return true;
}

static uint32_t rank_events(const Schedule *schedule, const PassTable *table, const Timeline *timeline, uint32_t rank,
                            Event *events)
{
    const Order *order = &schedule->orders[rank];
    uint32_t count = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *pass = &order->actions[i];
        const PlacedPipe *pipe = &schedule->pipes[pass->pipe];
        const bool forward = pass->kind == ACTION_F;
        Dependence needed;
        uint32_t stage;
        if (pass_dependence(schedule, table, pass, &needed) && needed.rank != rank) {
            Action receive = *pass;
            receive.kind = forward ? ACTION_RECV_F : ACTION_RECV_B;
            receive.overlap = false;
            receive.peer = needed.rank;
            events[count++] = (Event){timeline->end[needed.rank][needed.position], needed.rank, needed.position, receive};
        }
        if (consumer_stage(pipe, pass, &stage) && pipe->rank[stage] != rank) {
            Action send = *pass;
            send.kind = forward ? ACTION_SEND_F : ACTION_SEND_B;
            send.overlap = false;
            send.peer = pipe->rank[stage];
            events[count++] = (Event){timeline->end[rank][i], rank, i, send};
        }
    }
    return count;
}

void communicate(Schedule *schedule, PassTable *table, const Timeline *timeline, Arena *arena)
{
    uint32_t longest = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        if (schedule->orders[r].count > longest)
            longest = schedule->orders[r].count;
    Event *events = arena_array(arena, 2 * (size_t)longest, sizeof *events);
    Order *merged = arena_array(arena, schedule->ranks, sizeof *merged);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        const uint32_t count = rank_events(schedule, table, timeline, r, events);
        if (count)
            qsort(events, count, sizeof *events, by_time);
        merged[r].capacity = order->count + count;
        merged[r].actions = arena_array(arena, merged[r].capacity, sizeof *merged[r].actions);
        uint32_t next = 0;
        for (uint32_t i = 0; i < order->count; i++) {
            while (next < count && events[next].time <= timeline->start[r][i])
                order_append(&merged[r], arena, &events[next++].action);
            order_append(&merged[r], arena, &order->actions[i]);
        }
        while (next < count)
            order_append(&merged[r], arena, &events[next++].action);
    }
    schedule->orders = merged;
    passes_index(schedule, table);
}
