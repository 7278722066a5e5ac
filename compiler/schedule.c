#include "compiler/schedule.h"

#include <stdio.h>

void order_append(Order *order, Arena *arena, const Action *action)
{
    if (order->count == order->capacity) {
        const uint32_t grown = order->capacity ? 2 * order->capacity : 64;
        order->actions = arena_grow(arena, order->actions, order->capacity * sizeof *order->actions,
                                    grown * sizeof *order->actions);
        order->capacity = grown;
    }
    order->actions[order->count++] = *action;
}

int action_text(const Schedule *schedule, const Action *action, char *text, size_t size)
{
    static const char *const names[ACTION_KINDS] = {"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
    if (schedule->pipe_count > 1)
        return snprintf(text, size, "p%u:%u%s%u", action->pipe, action->stage, names[action->kind], action->microbatch);
    return snprintf(text, size, "%u%s%u", action->stage, names[action->kind], action->microbatch);
}
