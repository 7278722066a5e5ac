#include "compiler/schedule/timeline.h"

#include "program/times/costs_parts.h"

_Static_assert(ACTION_F == (int)COST_F && ACTION_B == (int)COST_B && ACTION_I == (int)COST_I &&
                   ACTION_W == (int)COST_W && ACTION_U == (int)COST_U,
               "costs_pass");

/* The stage before a chunk's stage, which sends it activations, or the stage after it, which sends it gradients. The
   passes of the chunk wait for the passes of these stages. */
typedef struct Neighbour {
    const PlacedPipe *pipe;
    uint32_t stage;
    /* [microbatch]: the position of the last pass before the output of the F (of the stage before) or of the backward
       (of the stage after) is sent; NULL: there is no such stage */
    const uint32_t *positions;
    uint32_t rank;  /* rank of that stage; in a replicated pipe, its rank for microbatch 0 */
    double message; /* transfer time of a message from that rank to the rank of the chunk */
} Neighbour;

/* The times of a chunk's passes by kind, and the stages whose passes they wait for. */
typedef struct ChunkTimes {
    double time[ACTION_U + 1];
    Neighbour before, after;
} ChunkTimes;

typedef struct Simulation {
    const Schedule *schedule;
    const PassTable *table;
    const Costs *costs;
    /* [rank][position]: times of the passes; NULL: passes take the time of the costs */
    const double *const *measured;
    ChunkTimes **chunks; /* [rank][chunk] */
    Timeline *timeline;
    double *free_at; /* [rank] */
} Simulation;

static Neighbour neighbour(const PlacedPipe *pipe, uint32_t stage, const uint32_t *positions, const Costs *costs,
                           uint32_t rank)
{
    if (stage >= pipe->stages)
        return (Neighbour){.positions = NULL};
    const uint32_t home = stage_home(pipe, stage, 0).rank;
    return (Neighbour){pipe, stage, positions + pass_index(pipe, stage, 0), home, costs_message(costs, home, rank)};
}

static ChunkTimes chunk_times(const Schedule *schedule, const PassTable *table, const Costs *costs, uint32_t rank,
                              uint32_t chunk)
{
    const PlacedChunk *placed = &schedule->chunks[rank][chunk];
    const PlacedPipe *pipe = &schedule->pipes[placed->pipe];
    ChunkTimes times = {.before = neighbour(pipe, placed->stage - 1u, table->forward_sent[placed->pipe], costs, rank),
                        .after = neighbour(pipe, placed->stage + 1u, table->backward_sent[placed->pipe], costs, rank)};
    for (uint8_t kind = ACTION_F; kind <= ACTION_U; kind++)
        times.time[kind] = costs_pass(costs, placed->stage, (StageCost)kind);
    return times;
}

/* The position of the next pass at or after `position`; the order's count if there is none. */
static uint32_t pass_at(const Order *order, uint32_t position)
{
    while (position < order->count && action_is_message(&order->actions[position]))
        position++;
    return position;
}

/* Raises `*time` to the time at which the last rank with a copy of the stage has reached its U of the same version.
   False: the copy on rank `*blocker` has not reached it yet. Until a U runs, timeline->start has the time at which its
   rank reached it. */
static bool update_start(const Simulation *simulation, const Action *update, double *time, uint32_t *blocker)
{
    Dependence there;
    for (uint32_t i = 0; pass_meets(simulation->schedule, simulation->table, update, i, &there); i++) {
        if (simulation->timeline->position[there.rank] < there.position) {
            *blocker = there.rank;
            return false;
        }
        const double come = simulation->timeline->start[there.rank][there.position];
        if (come > *time)
            *time = come;
    }
    return true;
}

/* Raises `*time` to the time at which the inputs of the pass have arrived. False: rank `*blocker` has not computed an
   input yet. */
static inline bool arrival(const Simulation *simulation, uint32_t rank, const Action *pass, double *time,
                           uint32_t *blocker)
{
    if (pass->kind == ACTION_W)
        return true;
    if (pass->kind == ACTION_U)
        return update_start(simulation, pass, time, blocker);
    const ChunkTimes *chunk = &simulation->chunks[rank][pass->chunk];
    const Neighbour *needed = pass->kind == ACTION_F ? &chunk->before : &chunk->after;
    if (!needed->positions)
        return true;
    const uint32_t position = needed->positions[pass->microbatch];
    uint32_t from = needed->rank;
    double message = needed->message;
    if (needed->pipe->replicated) {
        from = stage_home(needed->pipe, needed->stage, pass->microbatch).rank;
        message = costs_message(simulation->costs, from, rank);
    }
    if (simulation->timeline->position[from] <= position) {
        *blocker = from;
        return false;
    }
    const double ready = simulation->timeline->end[from][position] + message;
    if (ready > *time)
        *time = ready;
    return true;
}

static double duration(const Simulation *simulation, uint32_t rank, uint32_t first, uint32_t second)
{
    const Action *pass = &simulation->schedule->orders[rank].actions[first];
    const Action *other = &simulation->schedule->orders[rank].actions[second];
    if (simulation->measured)
        return simulation->measured[rank][first] + (second == first ? 0 : simulation->measured[rank][second]);
    if (second == first && pass->kind == ACTION_W && pass->put_off)
        return costs_put_off(simulation->costs, simulation->schedule->pipes[0].stages, pass->stage, pass->put_off);
    if (second == first)
        return simulation->chunks[rank][pass->chunk].time[pass->kind];
    return costs_pair(costs_of_pair(simulation->costs, pass->chunk, other->chunk), pass->stage, other->stage,
                      (StageCost)action_cost(other));
}

/* Runs a rank until it has to wait or ends. True: it waits for rank `*blocker`. */
static bool run_rank(const Simulation *simulation, uint32_t rank, uint32_t *blocker)
{
    const Order *order = &simulation->schedule->orders[rank];
    Timeline *timeline = simulation->timeline;
    double *start = timeline->start[rank], *end = timeline->end[rank], free_at = simulation->free_at[rank];
    uint32_t position = timeline->position[rank];
    bool halts = false;
    for (;;) {
        position = timeline->position[rank] = pass_at(order, position);
        if (position == order->count)
            break;
        const Action *pass = &order->actions[position];
        const uint32_t second = pass->overlap ? pass_at(order, position + 1) : position;
        double time = start[position] = free_at;
        halts = !arrival(simulation, rank, pass, &time, blocker) ||
                (second != position && !arrival(simulation, rank, &order->actions[second], &time, blocker));
        if (halts)
            break;
        start[position] = start[second] = time;
        end[position] = end[second] = free_at = time + duration(simulation, rank, position, second);
        timeline->position[rank] = position = second + 1;
    }
    simulation->free_at[rank] = free_at;
    return halts;
}

bool timeline_run_measured(const Schedule *schedule, const PassTable *table, const Costs *costs,
                           const double *const *measured, Arena *arena, Timeline *timeline)
{
    const uint32_t ranks = schedule->ranks;
    timeline->start = arena_array(arena, ranks, sizeof *timeline->start);
    timeline->end = arena_array(arena, ranks, sizeof *timeline->end);
    timeline->position = arena_array(arena, ranks, sizeof *timeline->position);
    timeline->makespan = 0;
    timeline->costs = costs;
    Simulation simulation = {
        .schedule = schedule, .table = table, .costs = costs, .measured = measured, .timeline = timeline};
    simulation.free_at = arena_array(arena, ranks, sizeof *simulation.free_at);
    simulation.chunks = arena_array(arena, ranks, sizeof *simulation.chunks);
    /* `ready` lists the ranks that may be able to run; `waiter` and `next_waiter` are, for each rank, a linked list of
       the ranks that wait for it. */
    uint32_t *ready = arena_array(arena, ranks, sizeof *ready);
    /* [rank]: 1 + the first rank that waits for this rank; 0: no rank waits */
    uint32_t *waiter = arena_array(arena, ranks, sizeof *waiter);
    uint32_t *next_waiter = arena_array(arena, ranks, sizeof *next_waiter);
    uint32_t ready_count = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        timeline->start[r] = arena_array(arena, schedule->orders[r].count, sizeof **timeline->start);
        timeline->end[r] = arena_array(arena, schedule->orders[r].count, sizeof **timeline->end);
        simulation.chunks[r] = arena_array(arena, schedule->chunk_counts[r], sizeof **simulation.chunks);
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
            simulation.chunks[r][c] = chunk_times(schedule, table, costs, r, c);
        ready[r] = ranks - 1 - r;
    }
    while (ready_count) {
        const uint32_t rank = ready[--ready_count];
        uint32_t blocker = 0;
        const uint32_t before = timeline->position[rank];
        if (run_rank(&simulation, rank, &blocker)) {
            next_waiter[rank] = waiter[blocker];
            waiter[blocker] = rank + 1;
        }
        if (timeline->position[rank] == before)
            continue;
        /* this rank has advanced, so the ranks that wait for it try again */
        for (uint32_t w = waiter[rank]; w; w = next_waiter[w - 1])
            ready[ready_count++] = w - 1;
        waiter[rank] = 0;
    }
    bool complete = true;
    for (uint32_t r = 0; r < ranks; r++) {
        complete = complete && timeline->position[r] == schedule->orders[r].count;
        if (simulation.free_at[r] > timeline->makespan)
            timeline->makespan = simulation.free_at[r];
    }
    return complete;
}

bool timeline_run(const Schedule *schedule, const PassTable *table, const Costs *costs, Arena *arena,
                  Timeline *timeline)
{
    return timeline_run_measured(schedule, table, costs, NULL, arena, timeline);
}

uint32_t timeline_before(const Order *order, uint32_t position)
{
    while (position-- > 0)
        if (!action_is_message(&order->actions[position]))
            return position > 0 && order->actions[position - 1].overlap ? position - 1 : position;
    return POSITION_NONE;
}

double timeline_arrival(const Schedule *schedule, const PassTable *table, const Timeline *timeline, uint32_t rank,
                        const Action *pass, Dependence *needed)
{
    if (pass_sender(schedule, table, pass, needed))
        return timeline->end[needed->rank][needed->position] + costs_message(timeline->costs, needed->rank, rank);
    double latest = -1;
    Dependence there;
    for (uint32_t i = 0; pass_meets(schedule, table, pass, i, &there); i++) {
        const uint32_t before = timeline_before(&schedule->orders[there.rank], there.position);
        if (there.rank == rank || before == POSITION_NONE || timeline->end[there.rank][before] <= latest)
            continue;
        latest = timeline->end[there.rank][before];
        *needed = (Dependence){there.rank, before};
    }
    return latest;
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

Bubble timeline_bubble(const Schedule *schedule, const Timeline *timeline)
{
    Bubble bubble = {0, 0, 0, 0};
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankTimes times = timeline_rank(schedule, timeline, r);
        bubble.cost = times.end - times.start > bubble.cost ? times.end - times.start : bubble.cost;
        bubble.largest_work = times.busy > bubble.largest_work ? times.busy : bubble.largest_work;
        bubble.work += times.busy;
    }
    bubble.work /= schedule->ranks;
    bubble.rate = bubble.cost > 0 ? (bubble.cost - bubble.work) / bubble.cost : 0;
    return bubble;
}

BubbleCauses timeline_bubble_causes(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                                    Arena *arena)
{
    Costs costs = *timeline->costs;
    Timeline quiet;
    costs.latency = 0;
    costs.bandwidth = -1;
    costs.link_count = 0;
    timeline_run(schedule, table, &costs, arena, &quiet);
    const Bubble bubble = timeline_bubble(schedule, &quiet);
    const double cost = bubble.cost > 0 ? bubble.cost : 1;
    return (BubbleCauses){.imbalance = (bubble.largest_work - bubble.work) / cost,
                          .order = (bubble.cost - bubble.largest_work) / cost,
                          .messages = timeline->makespan - quiet.makespan};
}
