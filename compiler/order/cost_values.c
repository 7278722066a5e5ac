#include "compiler/order/cost_values.h"

#include <math.h>

static const double unit = 1e6, most = 1e12;

static double mean_time(const PlacedPipe *pipe, const Costs *costs, StageCost cost)
{
    double sum = 0;
    for (uint32_t s = 0; s < pipe->stages; s++)
        sum += cost == COST_FB ? costs_pair(costs, s, s, COST_B) : costs_pass(costs, s, cost);
    return sum / pipe->stages;
}

static double mean_message(const PlacedPipe *pipe, const Costs *costs)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t s = 1; s < pipe->stages; s++) {
        const uint32_t before = stage_home(pipe, s - 1, 0).rank, here = stage_home(pipe, s, 0).rank;
        if (before == here)
            continue;
        sum += costs_message(costs, before, here) + costs_message(costs, here, before);
        count += 2;
    }
    return count ? sum / count : 0;
}

bool cost_values(const Ast *ast, const Schedule *schedule, const Costs *costs, Diagnostics *diagnostics,
                 Parameters *parameters)
{
    const PlacedPipe *pipe = &schedule->pipes[0];
    const double forward = mean_time(pipe, costs, COST_F);
    if (!(forward > 0)) {
        diag_error(diagnostics, ast->cost->span, "cost() counts in millionths of an F, but F takes no time");
        diag_help(diagnostics, "give F a time, as in %sF=1,I=1.2", front_before(costs->front_end, SET_COST));
        diag_refuses(diagnostics);
        return false;
    }
    for (int cost = 0; cost < COST_VALUES; cost++) {
        const double time = cost == COST_MESSAGE ? mean_message(pipe, costs) : mean_time(pipe, costs, (StageCost)cost);
        parameters->costs[cost] = (int64_t)round(fmin(unit * time / forward, most));
    }
    return true;
}
