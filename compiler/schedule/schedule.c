#include "compiler/schedule/schedule.h"

#include "base/counted.h"
#include "program/times/costs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const action_names[ACTION_KINDS] = {
    [ACTION_F] = "F",           [ACTION_B] = "B",           [ACTION_I] = "I",
    [ACTION_W] = "W",           [ACTION_U] = "U",           [ACTION_SEND_F] = "SEND_F",
    [ACTION_RECV_F] = "RECV_F", [ACTION_SEND_B] = "SEND_B", [ACTION_RECV_B] = "RECV_B",
};

const char *action_pair_name(const Action *second) { return second->kind == ACTION_F ? "OVERLAP_F_F" : "OVERLAP_F_B"; }

uint8_t action_kind_named(const char *name, size_t length)
{
    uint8_t kind = 0;
    while (kind < ACTION_KINDS &&
           (strlen(action_names[kind]) != length || memcmp(action_names[kind], name, length) != 0))
        kind++;
    return kind;
}

SizesText schedule_sizes(const Schedule *schedule)
{
    SizesText sizes;
    int used = snprintf(sizes.text, sizeof sizes.text, "%s, %s", counted(schedule->ranks, "rank").text,
                        counted(schedule->microbatches, "microbatch").text);
    for (uint32_t i = 0; i < schedule->chosen_count && used < (int)sizeof sizes.text; i++)
        used += snprintf(sizes.text + used, sizeof sizes.text - (size_t)used, ", %s = %" PRId64 "%s",
                         schedule->chosen[i].name, schedule->chosen[i].value,
                         i + 1 < schedule->chosen_count ? "" : " for these costs");
    return sizes;
}

bool schedule_runs_forward_only(const Schedule *schedule)
{
    bool any = false;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const uint8_t kind = schedule->orders[r].actions[i].kind;
            if (kind > ACTION_F && kind <= ACTION_U)
                return false;
            any |= kind == ACTION_F;
        }
    return any;
}

uint32_t schedule_costs_used(const Schedule *schedule)
{
    const uint32_t pair = 1u << (schedule->forward_only ? COST_FF : COST_FB);
    uint32_t used = 1u << COST_MEMORY_I | 1u << COST_MEMORY_W;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            used |= action_is_message(action) ? 0 : 1u << action_cost(action) | (action->overlap ? pair : 0);
        }
    return used;
}

uint32_t chunk_microbatch(const Schedule *schedule, uint32_t rank, uint32_t chunk, uint32_t from, uint32_t limit)
{
    const PlacedChunk *placed = &schedule->chunks[rank][chunk];
    const PlacedPipe *pipe = &schedule->pipes[placed->pipe];
    while (pipe->replicated && from < limit && stage_home(pipe, placed->stage, from).rank != rank)
        from++;
    return from;
}

void chunk_microbatches_text(const Schedule *schedule, uint32_t rank, uint32_t chunk, char *text, size_t size)
{
    enum { SHOWN = 4 };
    const uint32_t limit = schedule->pipes[schedule->chunks[rank][chunk].pipe].microbatches;
    uint32_t own[SHOWN] = {0}, count = 0;
    for (uint32_t m = 0; (m = chunk_microbatch(schedule, rank, chunk, m, limit)) < limit; m++, count++)
        if (count < SHOWN)
            own[count] = m;
    *text = 0;
    if (count == limit)
        return;
    int length = snprintf(text, size, count == 1 ? "microbatch" : "microbatches");
    for (uint32_t i = 0; i < count && i < SHOWN; i++)
        length += snprintf(text + length, size - (size_t)length, "%s %u", i ? "," : "", own[i]);
    if (count > SHOWN)
        snprintf(text + length, size - (size_t)length, ", ...");
}

void order_append(Order *order, Arena *arena, const Action *action)
{
    if (order->count == order->capacity) {
        const uint32_t grown = order->capacity ? 2 * order->capacity : 64;
        order->actions =
            arena_grow(arena, order->actions, order->capacity * sizeof *order->actions, grown * sizeof *order->actions);
        order->capacity = grown;
    }
    order->actions[order->count++] = *action;
}

int action_text(const Schedule *schedule, const Action *action, char *text, size_t size)
{
    if (schedule->pipe_count > 1)
        return snprintf(text, size, "p%u:%u%s%u", action->pipe, action->stage, action_names[action->kind],
                        action->microbatch);
    return snprintf(text, size, "%u%s%u", action->stage, action_names[action->kind], action->microbatch);
}

int pass_text(const Schedule *schedule, uint32_t rank, const Action *pass, char *text, size_t size)
{
    if (schedule->chunk_counts[rank] > 1)
        return snprintf(text, size, "%c%u[%u]", action_letter(pass->kind), pass->chunk, pass->microbatch);
    return snprintf(text, size, "%c[%u]", action_letter(pass->kind), pass->microbatch);
}
