#include "compiler/search/search_problem.h"

#include <math.h>

/* Ticks per unit of the costs: the power of ten with which the longest time of a pass or message is 10^8 ticks or more,
   but less than 10^9; 1 if all times are 0. A power of ten keeps times with few digits exact. */
static double ticks_of(const Schedule *schedule, const Costs *costs)
{
    double longest = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
            const PlacedChunk *placed = &schedule->chunks[r][c];
            const PlacedPipe *pipe = &schedule->pipes[placed->pipe];
            for (StageCost kind = COST_F; kind <= COST_W; kind++)
                longest = fmax(longest, costs_pass(costs, placed->stage, kind));
            if (placed->stage > 0)
                longest = fmax(longest, costs_message(costs, stage_home(pipe, placed->stage - 1u, 0).rank, r));
            if (placed->stage + 1u < pipe->stages)
                longest = fmax(longest, costs_message(costs, stage_home(pipe, placed->stage + 1u, 0).rank, r));
        }
    double ticks = 1;
    while (longest > 0 && longest * ticks < 1e8)
        ticks *= 10;
    while (longest * ticks >= 1e9)
        ticks /= 10;
    return ticks;
}

static void make_node(SearchProblem *problem, const Schedule *schedule, const Costs *costs, uint32_t rank,
                      uint8_t chunk)
{
    const PlacedChunk *placed = &schedule->chunks[rank][chunk];
    const PlacedPipe *pipe = &schedule->pipes[placed->pipe];
    SearchNode *node = &problem->nodes[search_node_of(problem, rank, chunk)];
    *node = (SearchNode){.rank = rank,
                         .pipe = placed->pipe,
                         .stage = placed->stage,
                         .microbatches = pipe->microbatches,
                         .before = NO_NODE,
                         .after = NO_NODE,
                         .home = NO_NODE,
                         .first = problem->cells};
    problem->cells += pipe->microbatches;
    node->time[ACTION_F] = llround(costs_pass(costs, placed->stage, COST_F) * problem->ticks);
    node->time[ACTION_B] = llround(costs_pass(costs, placed->stage, COST_B) * problem->ticks);
    node->time[ACTION_I] = llround(costs_pass(costs, placed->stage, COST_I) * problem->ticks);
    node->time[ACTION_W] = llround(costs_pass(costs, placed->stage, COST_W) * problem->ticks);
    if (placed->stage > 0) {
        const Home there = stage_home(pipe, placed->stage - 1u, 0);
        node->before = search_node_of(problem, there.rank, there.chunk);
        node->from_before = llround(costs_message(costs, there.rank, rank) * problem->ticks);
    }
    if (placed->stage + 1u < pipe->stages) {
        const Home there = stage_home(pipe, placed->stage + 1u, 0);
        node->after = search_node_of(problem, there.rank, there.chunk);
        node->from_after = llround(costs_message(costs, there.rank, rank) * problem->ticks);
    }
    SearchRank *of = &problem->ranks[rank];
    const int64_t together = node->time[ACTION_F] + node->time[ACTION_I] + node->time[ACTION_W];
    of->work += together * node->microbatches;
    of->passes += 3 * node->microbatches;
}

static void find_period(SearchProblem *problem, const SearchRank *rank)
{
    int64_t period = 0;
    for (uint32_t n = rank->first_node; n < rank->first_node + rank->node_count; n++)
        period +=
            problem->nodes[n].time[ACTION_F] + problem->nodes[n].time[ACTION_I] + problem->nodes[n].time[ACTION_W];
    if (period <= problem->period)
        return;
    problem->period = period;
    problem->slot = period / (3 * rank->node_count);
}

/* Finds the times at which one microbatch alone reaches each stage, forward and back. Also sets home and rest of each
   node, and most_nodes of each rank. */
static void find_paths(SearchProblem *problem, const Schedule *schedule)
{
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const PlacedPipe *pipe = &schedule->pipes[p];
        int64_t time = 0;
        for (uint32_t s = 0; s < pipe->stages; s++) {
            const Home home = stage_home(pipe, s, 0);
            SearchNode *node = &problem->nodes[search_node_of(problem, home.rank, home.chunk)];
            node->forward_path = time += node->from_before;
            time += node->time[ACTION_F];
        }
        for (uint32_t s = pipe->stages; s-- > 0;) {
            const Home home = stage_home(pipe, s, 0);
            SearchNode *node = &problem->nodes[search_node_of(problem, home.rank, home.chunk)];
            node->backward_path = time += node->from_after;
            time += node->time[ACTION_I];
        }
    }
    for (uint32_t n = 0; n < problem->node_count; n++) {
        SearchNode *node = &problem->nodes[n];
        SearchRank *rank = &problem->ranks[node->rank];
        uint32_t of_pipe = 0;
        node->home = n;
        for (uint32_t i = rank->first_node; i < rank->first_node + rank->node_count; i++) {
            const SearchNode *other = &problem->nodes[i];
            of_pipe += other->pipe == node->pipe;
            node->rest += other->pipe == node->pipe && other->stage > node->stage;
            if (other->pipe == node->pipe && other->stage < problem->nodes[node->home].stage)
                node->home = i;
        }
        if (of_pipe > rank->most_nodes)
            rank->most_nodes = of_pipe;
    }
}

/* --- lower bound --- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* with more (rank, node) pairs than this, the bound does not use chain() */
enum { CHAINS_MAX = 100 * 1000000 };

/* A lower bound of a rank's idle time. At the start the rank is idle if it has run all its F, or its memory is full,
   before its first I can start. At the end it is idle if the I and W of all other microbatches whose activations it
   holds are done before the I of its last microbatch can start. */
static int64_t idle_of_memory(const SearchProblem *problem, const SearchRank *rank)
{
    int64_t back = NEVER, forward = 0, input = 0, weight = 0, last = NEVER, forwards = 0;
    for (uint32_t i = rank->first_node; i < rank->first_node + rank->node_count; i++) {
        const SearchNode *node = &problem->nodes[i];
        back = smaller(back, node->backward_path - node->forward_path);
        last = smaller(last, node->backward_path - node->forward_path - node->time[ACTION_F] + node->time[ACTION_I] +
                                 node->time[ACTION_W]);
        forward = larger(forward, node->time[ACTION_F]);
        input = larger(input, node->time[ACTION_I]);
        weight = larger(weight, node->time[ACTION_W]);
        forwards += node->microbatches;
    }
    const int64_t held = smaller(forwards, rank->limit / problem->memory[ACTION_F]);
    int64_t left = forwards * (input + weight); /* most work, I and W, that can remain after the last F of the rank */
    if (held < forwards) {
        /* After the last F, say k microbatches still need their I and W, and memory limits how many others still need
           only their W. The most work left is a concave, piecewise linear function of k. It bends at the largest k with
           which memory still holds the W of all other microbatches. */
        const int64_t unit = -problem->memory[ACTION_W], step = problem->memory[ACTION_F] - unit;
        int64_t corner = unit && step ? (rank->limit - unit * forwards) / step : 1;
        corner = larger(1, smaller(corner, held));
        const int64_t candidates[] = {1, corner, smaller(corner + 1, held), held};
        left = 0;
        for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
            const int64_t k = candidates[i], room = rank->limit - k * problem->memory[ACTION_F];
            left = larger(left, k * (input + weight) + smaller(unit ? room / unit : forwards, forwards - k) * weight);
        }
        if (unit && problem->memory[ACTION_F] % unit)
            /* room / unit is rounded down, so the most work may be at a k that is not among the candidates. It is at
               most the time of one W more. */
            left += weight;
    }
    const int64_t head = larger(0, back - held * forward), tail = larger(0, last - left);
    return held < forwards ? head + tail : larger(head, tail);
}

/* Lower bound of the time from the start to the end of rank A, during which rank `through` runs all its F and I.
   entry[pipe]: the node of A with A's earliest stage of the pipe, or NO_NODE. 0: there is no such bound, because
   `through` may begin earlier than A. */
static int64_t chain(const SearchProblem *problem, const SearchRank *through, const uint32_t *entry)
{
    int64_t head = NEVER, tail = NEVER, work = 0;
    for (uint32_t i = through->first_node; i < through->first_node + through->node_count; i++) {
        const SearchNode *node = &problem->nodes[i];
        const uint32_t at = entry[node->pipe];
        if (at == NO_NODE || problem->nodes[at].stage > node->stage)
            return 0;
        const SearchNode *first = &problem->nodes[at];
        head = smaller(head, node->forward_path - first->forward_path);
        tail = smaller(tail, first->backward_path - node->backward_path +
                                 (at == i ? 0 : first->time[ACTION_I] - node->time[ACTION_I]) + first->time[ACTION_W]);
        work += (node->time[ACTION_F] + node->time[ACTION_I]) * node->microbatches;
    }
    return head + work + tail;
}

static int64_t lower_bound(const SearchProblem *problem, Arena *arena)
{
    int64_t bound = 0;
    /* [pipe]: the rank's node with the earliest stage of the pipe; NO_NODE: the rank has none */
    uint32_t *entry = arena_array(arena, problem->pipe_count, sizeof *entry);
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        for (uint32_t p = 0; p < problem->pipe_count; p++)
            entry[p] = NO_NODE;
        for (uint32_t i = rank->first_node; i < rank->first_node + rank->node_count; i++)
            entry[problem->nodes[i].pipe] = problem->nodes[i].home;
        bound = larger(bound, rank->work + idle_of_memory(problem, rank));
        for (uint32_t q = 0;
             q < problem->rank_count && (uint64_t)problem->rank_count * problem->node_count <= CHAINS_MAX; q++)
            bound = larger(bound, chain(problem, &problem->ranks[q], entry));
    }
    return bound;
}

void search_problem_make(const Schedule *schedule, const SearchTask *task, Arena *arena, SearchProblem *problem)
{
    *problem =
        (SearchProblem){.rank_count = schedule->ranks,
                        .pipe_count = schedule->pipe_count,
                        .stages = schedule->pipes[0].stages,
                        .ticks = ticks_of(schedule, task->costs),
                        .memory = {[ACTION_F] = task->forward, [ACTION_I] = task->input, [ACTION_W] = task->weight}};
    problem->ranks = arena_array(arena, schedule->ranks, sizeof *problem->ranks);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        problem->ranks[r] = (SearchRank){
            .first_node = problem->node_count, .node_count = schedule->chunk_counts[r], .limit = task->memory[r]};
        problem->node_count += schedule->chunk_counts[r];
    }
    problem->nodes = arena_array(arena, problem->node_count, sizeof *problem->nodes);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        problem->ranks[r].first = problem->passes;
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++)
            make_node(problem, schedule, task->costs, r, (uint8_t)c);
        problem->passes += problem->ranks[r].passes;
        find_period(problem, &problem->ranks[r]);
    }
    find_paths(problem, schedule);
    problem->bound = lower_bound(problem, arena);
}

void search_order_write(const SearchProblem *problem, const SearchOrder *found, Span span, Arena *arena,
                        Schedule *schedule)
{
    uint32_t(*next)[ACTION_W + 1] = arena_array(arena, problem->node_count, sizeof *next);
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const SearchRank *rank = &problem->ranks[r];
        Order *order = &schedule->orders[r];
        order->actions = arena_array(arena, rank->passes, sizeof *order->actions);
        order->count = order->capacity = rank->passes;
        for (uint32_t i = 0; i < rank->passes; i++) {
            const SearchPass pass = found->passes[rank->first + i];
            const PlacedChunk *placed = &schedule->chunks[r][pass.chunk];
            order->actions[i] = (Action){.kind = pass.kind,
                                         .chunk = pass.chunk,
                                         .pipe = placed->pipe,
                                         .stage = placed->stage,
                                         .microbatch = next[search_node_of(problem, r, pass.chunk)][pass.kind]++,
                                         .span = span};
        }
    }
}
