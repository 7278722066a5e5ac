#include "compiler/schedule/rank_load.h"

RankLoad rank_load(const Schedule *schedule, const Costs *costs, uint32_t rank)
{
    RankLoad load = {0, 0, 0};
    double held = 0;
    for (uint32_t i = 0; i < schedule->orders[rank].count; i++) {
        const Action *action = &schedule->orders[rank].actions[i];
        switch (action->kind) {
        case ACTION_F: held += schedule->forward_only ? 0 : costs_memory(costs, action->stage, COST_MEMORY_I); break;
        case ACTION_B: held -= costs_memory(costs, action->stage, COST_MEMORY_I); break;
        case ACTION_I:
            held +=
                costs_memory(costs, action->stage, COST_MEMORY_W) - costs_memory(costs, action->stage, COST_MEMORY_I);
            break;
        case ACTION_W: held -= costs_memory(costs, action->stage, COST_MEMORY_W); break;
        case ACTION_SEND_F:
        case ACTION_SEND_B: load.messages++; break;
        default: break;
        }
        if (held > load.peak_memory)
            load.peak_memory = held;
    }
    load.bytes_sent = (double)load.messages * costs->bytes;
    return load;
}
