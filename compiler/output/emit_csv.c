#include "compiler/output/emit.h"

static void print_action(const Schedule *schedule, const Action *action, FILE *stream)
{
    char text[64];
    action_text(schedule, action, text, sizeof text);
    fputs(text, stream);
    const uint32_t *versions = schedule->pipes[action->pipe].versions;
    if (versions && action->kind == ACTION_F)
        fprintf(stream, "v%u", versions[action->microbatch]);
}

void emit_csv(const Schedule *schedule, bool messages, FILE *stream)
{
    for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
        const Order *order = &schedule->orders[rank];
        bool first = true;
        for (uint32_t i = 0; i < order->count; i++) {
            const Action *action = &order->actions[i];
            if (action_is_message(action) && !messages)
                continue;
            if (!first)
                putc(',', stream);
            first = false;
            if (!action->overlap) {
                print_action(schedule, action, stream);
                continue;
            }
            putc('(', stream);
            print_action(schedule, action, stream);
            putc(';', stream);
            print_action(schedule, &order->actions[++i], stream);
            fprintf(stream, ")%s", action_pair_name(&order->actions[i]));
        }
        putc('\n', stream);
    }
}
