#include "compiler/schedule/gradient_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sum of a stage's gradients. */
typedef struct StageSum {
    uint32_t stage, copies; /* copies: number of copies of the stage in one replica of the pipeline */
    uint32_t updates;       /* number of U of all these copies; 0 in a synchronous schedule */
    double ready;           /* when the last backward pass of all copies ends; < 0: there is none */
} StageSum;

static StageSum *stage_sums(const Schedule *schedule, const Timeline *timeline, Arena *arena)
{
    const uint32_t stages = schedule->pipes[0].stages;
    StageSum *sums = arena_array(arena, stages, sizeof *sums);
    for (uint32_t s = 0; s < stages; s++)
        sums[s] = (StageSum){.stage = s, .ready = -1};
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
            sums[schedule->chunks[r][c].stage].copies++;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            StageSum *sum = &sums[action->stage];
            sum->updates += action->kind == ACTION_U;
            if (action->kind == ACTION_B || action->kind == ACTION_W)
                sum->ready = fmax(sum->ready, timeline->end[r][i]);
        }
    }
    return sums;
}

static int by_ready(const void *left, const void *right)
{
    const StageSum *a = left, *b = right;
    return a->ready != b->ready ? (a->ready > b->ready) - (a->ready < b->ready)
                                : (a->stage > b->stage) - (a->stage < b->stage);
}

static bool has_stage(const Schedule *schedule, uint32_t rank, uint32_t stage)
{
    for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++)
        if (schedule->chunks[rank][c].stage == stage)
            return true;
    return false;
}

/* Simulates the sum of the gradients of a stage, which takes `time`. It starts when the gradients are ready and all
   ranks with the stage have finished their earlier sums. Returns its start. */
static double run_sum(const Schedule *schedule, const StageSum *sum, double time, double *free_at)
{
    double start = sum->ready;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        if (has_stage(schedule, r, sum->stage))
            start = fmax(start, free_at[r]);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        if (has_stage(schedule, r, sum->stage))
            free_at[r] = start + time;
    return start;
}

/* What the sums add to the makespan of an asynchronous schedule: there each U takes longer, by the time of a sum. */
static double added_by_updates(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                               uint32_t replicas, const StageSum *sums, Arena *arena)
{
    Costs costs = *timeline->costs;
    Timeline slower;
    costs.stage_count = schedule->pipes[0].stages;
    costs.stages = arena_array(arena, costs.stage_count, sizeof *costs.stages);
    for (uint32_t s = 0; s < costs.stage_count; s++) {
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            costs.stages[s][cost] = costs_given(timeline->costs, s, cost);
        costs.stages[s][COST_U] += costs_sum(&costs, s, replicas * sums[s].copies);
    }
    timeline_run(schedule, table, &costs, arena, &slower);
    return slower.makespan - timeline->makespan;
}

GradientSums gradient_sums(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                           uint32_t replicas, Arena *arena)
{
    GradientSums result = {0, 0, 0, 0};
    StageSum *sums = stage_sums(schedule, timeline, arena);
    double *free_at = arena_array(arena, schedule->ranks, sizeof *free_at);
    if (schedule->asynchronous)
        result.added = added_by_updates(schedule, table, timeline, replicas, sums, arena);
    else
        qsort(sums, schedule->pipes[0].stages, sizeof *sums, by_ready);
    for (uint32_t s = 0; s < schedule->pipes[0].stages; s++) {
        const StageSum *sum = &sums[s];
        const uint32_t copies = replicas * sum->copies;
        const uint32_t times = schedule->asynchronous ? sum->updates / sum->copies : sum->ready >= 0;
        const double time = costs_sum(timeline->costs, sum->stage, copies);
        result.time += times * time;
        result.bytes += times * (double)sum->copies * costs_sum_bytes(timeline->costs, sum->stage, copies);
        if (schedule->asynchronous || !times)
            continue;
        const double start = run_sum(schedule, sum, time, free_at);
        result.hidden += fmin(time, fmax(timeline->makespan - start, 0));
        result.added = fmax(result.added, start + time - timeline->makespan);
    }
    return result;
}
