#include "compiler/timeline.h"

#include <stdlib.h>
#include <string.h>

const Costs costs_unit = {.forward = 1, .input = 1, .weight = 1, .backward = -1, .overlap = -1, .message = 0};

Status costs_set(Costs *costs, const char *assignments, Error *error)
{
    const struct {
        const char *name;
        double *value;
    } names[] = {{"F", &costs->forward},  {"I", &costs->input},    {"W", &costs->weight},
                 {"B", &costs->backward}, {"FB", &costs->overlap}, {"comm", &costs->message}};
    for (const char *next = assignments; *next;) {
        const size_t length = strcspn(next, "=,");
        size_t i = 0;
        while (i < sizeof names / sizeof *names && (strlen(names[i].name) != length || memcmp(names[i].name, next, length) != 0))
            i++;
        if (i == sizeof names / sizeof *names || next[length] != '=')
            return error_set(error, STATUS_BAD_USAGE, "--cost: '%.*s' is not NAME=VALUE with NAME one of F, I, W, B, FB, comm",
                             (int)strcspn(next, ","), next);
        char *end;
        const double value = strtod(next + length + 1, &end);
        if (end == next + length + 1 || (*end && *end != ',') || !(value >= 0) || value > 1e12)
            return error_set(error, STATUS_BAD_USAGE, "--cost: '%.*s' needs a time of at least 0", (int)strcspn(next, ","), next);
        *names[i].value = value;
        next = *end ? end + 1 : end;
    }
    return STATUS_OK;
}

double pass_cost(const Costs *costs, uint8_t kind)
{
    switch (kind) {
    case ACTION_F:
        return costs->forward;
    case ACTION_B:
        return costs->backward < 0 ? costs->input + costs->weight : costs->backward;
    case ACTION_I:
        return costs->input;
    case ACTION_W:
        return costs->weight;
    default:
        return 0;
    }
}

static double overlap_cost(const Costs *costs, uint8_t backward_kind)
{
    const double both = costs->forward + pass_cost(costs, ACTION_B);
    const double this = costs->forward + pass_cost(costs, backward_kind);
    if (costs->overlap < 0 || both <= 0)
        return this;
    return costs->overlap * this / both;
}

/* The position of the next pass at or behind `position`; the order's count when there is none. */
static uint32_t pass_at(const Order *order, uint32_t position)
{
    while (position < order->count && order->actions[position].kind > ACTION_W)
        position++;
    return position;
}

/* When what the pass needs has arrived; false while it has not been made yet. */
static bool arrival(const Schedule *schedule, const PassTable *table, const Costs *costs, const Timeline *timeline,
                    uint32_t rank, const Action *pass, double *time, uint32_t *blocker)
{
    Dependence dependence;
    if (!pass_dependence(schedule, table, pass, &dependence))
        return true;
    if (timeline->position[dependence.rank] <= dependence.position) {
        *blocker = dependence.rank;
        return false;
    }
    const double ready = timeline->end[dependence.rank][dependence.position] + (dependence.rank == rank ? 0 : costs->message);
    if (ready > *time)
        *time = ready;
    return true;
}

bool timeline_run(const Schedule *schedule, const PassTable *table, const Costs *costs, Arena *arena, Timeline *timeline)
{
    const uint32_t ranks = schedule->ranks;
    timeline->start = arena_array(arena, ranks, sizeof *timeline->start);
    timeline->end = arena_array(arena, ranks, sizeof *timeline->end);
    timeline->position = arena_array(arena, ranks, sizeof *timeline->position);
    timeline->makespan = 0;
    double *free_at = arena_array(arena, ranks, sizeof *free_at);
    /* Ranks that may go on: a list of ready ones, and for every rank the list of those that wait for it to move. */
    uint32_t *ready = arena_array(arena, ranks, sizeof *ready);
    uint32_t *waiter = arena_array(arena, ranks, sizeof *waiter);       /* first that waits for this rank, + 1 */
    uint32_t *next_waiter = arena_array(arena, ranks, sizeof *next_waiter);
    uint32_t ready_count = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        timeline->start[r] = arena_array(arena, schedule->orders[r].count, sizeof **timeline->start);
        timeline->end[r] = arena_array(arena, schedule->orders[r].count, sizeof **timeline->end);
        ready[r] = ranks - 1 - r;
    }
    while (ready_count) {
        const uint32_t rank = ready[--ready_count];
        const Order *order = &schedule->orders[rank];
        for (;;) {
            const uint32_t position = timeline->position[rank] = pass_at(order, timeline->position[rank]);
            if (position == order->count)
                break;
            const Action *pass = &order->actions[position];
            const uint32_t second = pass->overlap ? pass_at(order, position + 1) : position;
            double time = free_at[rank];
            uint32_t blocker = 0;
            if (!arrival(schedule, table, costs, timeline, rank, pass, &time, &blocker) ||
                (second != position && !arrival(schedule, table, costs, timeline, rank, &order->actions[second], &time, &blocker))) {
                next_waiter[rank] = waiter[blocker];
                waiter[blocker] = rank + 1;
                break;
            }
            double cost = second == position ? pass_cost(costs, pass->kind) : overlap_cost(costs, order->actions[second].kind);
            if (costs->measured)
                cost = costs->measured[rank][position] + (second == position ? 0 : costs->measured[rank][second]);
            timeline->start[rank][position] = timeline->start[rank][second] = time;
            timeline->end[rank][position] = timeline->end[rank][second] = free_at[rank] = time + cost;
            timeline->position[rank] = second + 1;
            if (waiter[rank]) { /* they look again */
                for (uint32_t w = waiter[rank]; w; w = next_waiter[w - 1])
                    ready[ready_count++] = w - 1;
                waiter[rank] = 0;
            }
        }
    }
    bool complete = true;
    for (uint32_t r = 0; r < ranks; r++) {
        complete = complete && timeline->position[r] == schedule->orders[r].count;
        if (free_at[r] > timeline->makespan)
            timeline->makespan = free_at[r];
    }
    return complete;
}

RankTimes timeline_rank(const Schedule *schedule, const Timeline *timeline, uint32_t rank)
{
    const Order *order = &schedule->orders[rank];
    RankTimes times = {0, 0, 0};
    bool first = true;
    for (uint32_t i = pass_at(order, 0); i < order->count; i = pass_at(order, i + 1)) {
        if (first)
            times.start = timeline->start[rank][i];
        first = false;
        times.end = timeline->end[rank][i];
        times.busy += timeline->end[rank][i] - timeline->start[rank][i];
        if (order->actions[i].overlap)
            i = pass_at(order, i + 1);
    }
    return times;
}
