#pragma once

/* Random times of passes and messages, of all stages or of each; in some cases a B takes less time than an I and a W,
   or an F&B or F&F takes longer than its halves in turn. */

#include "tests/timeline/compiled.h"

static inline double random_cost(uint64_t *seed, bool whole)
{
    return whole ? 1 + (double)random_below(seed, 3) : (1 + (double)random_below(seed, 300)) / 100;
}

static inline Costs random_costs(uint64_t *seed, uint32_t stages, Arena *arena)
{
    static const double overlaps[] = {-1, 1, 0.8, 0.7, 0.55, 0.2, 1.3};
    const bool whole = random_below(seed, 3), each = random_below(seed, 4) == 0;
    Costs costs = costs_unit;
    for (StageCost kind = COST_F; kind <= COST_W; kind++)
        if (kind != COST_B || random_below(seed, 4) == 0)
            costs.all[kind] = random_below(seed, 2) ? random_cost(seed, whole) : 1;
    if (random_below(seed, 2))
        costs.all[COST_FB] =
            costs_pass(&costs, 0, COST_F) + costs_pass(&costs, 0, COST_B) * (double)(50 + random_below(seed, 60)) / 100;
    if (random_below(seed, 2))
        costs.all[COST_FF] = costs_pass(&costs, 0, COST_F) * (double)(100 + random_below(seed, 120)) / 100;
    costs.overlap = overlaps[random_below(seed, sizeof overlaps / sizeof *overlaps)];
    costs.latency = random_below(seed, 2) ? 0 : random_cost(seed, whole) / 2;
    if (!each)
        return costs;
    costs.stage_count = stages;
    costs.stages = arena_array(arena, stages, sizeof *costs.stages);
    for (uint32_t s = 0; s < stages; s++)
        for (StageCost kind = 0; kind < STAGE_COSTS; kind++)
            costs.stages[s][kind] =
                kind != COST_U && kind <= COST_FF && random_below(seed, 2) ? random_cost(seed, whole) : -1;
    return costs;
}
