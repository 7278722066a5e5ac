#include "compiler/order/put_off.h"

/* The components whose weight gradients the F&B at `position` puts off, as bits; 0: it puts none off, or there is no
   F&B. */
static uint16_t components_of(const Schedule *schedule, const Order *order, uint32_t position)
{
    const Action *first = &order->actions[position];
    if (!first->overlap || first[1].kind != ACTION_B)
        return 0;
    return recipes_pair_put_off(&schedule->recipes, first->chunk, first[1].chunk);
}

static Order split_pairs(const Schedule *schedule, const Order *order, Arena *arena)
{
    Order result = {.capacity = 2 * order->count};
    result.actions = arena_array(arena, result.capacity, sizeof *result.actions);
    for (uint32_t i = 0; i < order->count; i++) {
        const uint16_t components = components_of(schedule, order, i);
        result.actions[result.count++] = order->actions[i];
        if (!components)
            continue;
        Action backward = order->actions[++i];
        backward.put_off = components;
        backward.kind = ACTION_I;
        result.actions[result.count++] = backward;
        backward.kind = ACTION_W;
        result.actions[result.count++] = backward;
    }
    return result;
}

/* Whether a message sends the result of a pass. */
static bool sends_result(const Action *message, const Action *pass)
{
    return message->kind == (pass->kind == ACTION_F ? ACTION_SEND_F : ACTION_SEND_B) && message->pipe == pass->pipe &&
           message->stage == pass->stage && message->microbatch == pass->microbatch;
}

/* Among the messages that directly follow the W at `position`, the position of the last one that sends a result of
   the W's F&B; `position` if there is none. */
static uint32_t last_send(const Order *order, uint32_t position)
{
    uint32_t pair = position - 1, last = position;
    while (!order->actions[pair].overlap)
        pair--;
    for (uint32_t i = position + 1; i < order->count && action_is_message(&order->actions[i]); i++)
        for (const Action *half = &order->actions[pair]; half <= &order->actions[pair + 1]; half++)
            if (sends_result(&order->actions[i], half))
                last = i;
    return last;
}

void put_off_after_sends(Schedule *schedule, PassTable *table)
{
    if (!recipes_put_off(&schedule->recipes))
        return;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        for (uint32_t i = 0; i < order->count; i++) {
            const Action weight = order->actions[i];
            if (weight.kind != ACTION_W || !weight.put_off)
                continue;
            for (const uint32_t last = last_send(order, i); i < last; i++)
                order->actions[i] = order->actions[i + 1];
            order->actions[i] = weight;
        }
    }
    passes_index(schedule, table);
}

void put_off(Schedule *schedule, PassTable *table, Arena *arena)
{
    if (!recipes_put_off(&schedule->recipes))
        return;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        schedule->orders[r] = split_pairs(schedule, &schedule->orders[r], arena);
    passes_index(schedule, table);
}
