#include "compiler/search/search_list.h"

#include <string.h>

/* The progress of a node (a chunk of a rank). */
typedef struct NodeState {
    uint32_t done[ACTION_W + 1]; /* [kind of pass]: how many of the node's passes of this kind have started */
    /* when the input of the node's next F arrives; NEVER: the pass that makes it has not started, or no F is left */
    int64_t forward_at;
    /* when the input of the node's next I arrives (on the last stage: when its F ends); NEVER: the pass that makes it
       or the F of its microbatch has not started, or no I is left */
    int64_t input_at;
} NodeState;

typedef struct RankState {
    int64_t free_at, idle, held;
    uint32_t made; /* number of passes started so far */
    /* forwards: number of F so far; weights: number of I so far, each of which needs a W; weights_made: number of W so
       far */
    uint32_t forwards, weights, weights_made;
} RankState;

struct SearchList {
    const SearchProblem *problem;
    const SearchPolicy *policy;
    NodeState *nodes;
    RankState *ranks;
    int64_t *forward_end, *input_end; /* [cells] */
    /* [cells], grouped by rank: the node of each I, in the order in which the I ran. The W run in the same order. */
    uint32_t *inputs;
    /* tournament tree over the ranks: a leaf has the time at which its rank must decide next, an inner node the earlier
       one of its two children */
    int64_t *wake;
    uint32_t leaves;
    SearchPass *passes;
    SearchSight sight;
};

SearchList *search_list_new(const SearchProblem *problem, Arena *arena)
{
    SearchList *list = arena_allocate(arena, sizeof *list);
    *list = (SearchList){.problem = problem, .leaves = 1};
    list->nodes = arena_array(arena, problem->node_count, sizeof *list->nodes);
    list->ranks = arena_array(arena, problem->rank_count, sizeof *list->ranks);
    list->forward_end = arena_array(arena, problem->cells, sizeof *list->forward_end);
    list->input_end = arena_array(arena, problem->cells, sizeof *list->input_end);
    list->inputs = arena_array(arena, problem->cells, sizeof *list->inputs);
    while (list->leaves < problem->rank_count)
        list->leaves *= 2;
    list->wake = arena_array(arena, 2 * (size_t)list->leaves, sizeof *list->wake);
    return list;
}

static void set_wake(SearchList *list, uint32_t rank, int64_t time)
{
    int64_t *wake = list->wake;
    size_t i = list->leaves + rank;
    wake[i] = time;
    while (i > 1) {
        const int64_t least = wake[i] < wake[i ^ 1] ? wake[i] : wake[i ^ 1];
        i /= 2;
        if (wake[i] == least)
            break;
        wake[i] = least;
    }
}

static uint32_t next_rank(const SearchList *list)
{
    size_t i = 1;
    while (i < list->leaves)
        i = 2 * i + (list->wake[2 * i] != list->wake[i]);
    return (uint32_t)(i - list->leaves);
}

/* Lets a rank decide at `time`, when an input for it arrives, or when it is free, if that is later. If the rank decides
   earlier anyway, nothing changes. */
static void notify(SearchList *list, uint32_t rank, int64_t time)
{
    const int64_t at = time > list->ranks[rank].free_at ? time : list->ranks[rank].free_at;
    if (at < list->wake[list->leaves + rank])
        set_wake(list, rank, at);
}

static void find_forward(SearchList *list, uint32_t n)
{
    const SearchNode *node = &list->problem->nodes[n];
    NodeState *state = &list->nodes[n];
    const uint32_t m = state->done[ACTION_F];
    if (m == node->microbatches)
        state->forward_at = NEVER;
    else if (node->before == NO_NODE)
        state->forward_at = 0;
    else if (list->nodes[node->before].done[ACTION_F] > m)
        state->forward_at = list->forward_end[list->problem->nodes[node->before].first + m] +
                            (list->sight == SIGHT_ALL ? node->from_before : 0);
    else
        state->forward_at = NEVER;
}

static void find_input(SearchList *list, uint32_t n)
{
    const SearchNode *node = &list->problem->nodes[n];
    NodeState *state = &list->nodes[n];
    const uint32_t m = state->done[ACTION_I];
    if (m == state->done[ACTION_F])
        state->input_at = NEVER;
    else if (node->after == NO_NODE)
        state->input_at = list->forward_end[node->first + m];
    else if (list->nodes[node->after].done[ACTION_I] > m)
        state->input_at = list->input_end[list->problem->nodes[node->after].first + m] +
                          (list->sight == SIGHT_ALL ? node->from_after : 0);
    else
        state->input_at = NEVER;
}

static int64_t time_of(const SearchList *list, uint32_t n, uint8_t kind)
{
    return list->sight == SIGHT_SLOTS ? list->problem->slot : list->problem->nodes[n].time[kind];
}

static uint32_t *inputs_of(const SearchList *list, uint32_t rank)
{
    return list->inputs + list->problem->nodes[list->problem->ranks[rank].first_node].first;
}

static void start(SearchList *list, uint32_t r, uint32_t n, uint8_t kind, int64_t now)
{
    const SearchProblem *problem = list->problem;
    const SearchNode *node = &problem->nodes[n];
    NodeState *state = &list->nodes[n];
    RankState *rank = &list->ranks[r];
    if (rank->made)
        rank->idle += now - rank->free_at;
    rank->free_at = now + time_of(list, n, kind);
    rank->held += problem->memory[kind];
    list->passes[problem->ranks[r].first + rank->made++] =
        (SearchPass){kind, (uint8_t)(n - problem->ranks[r].first_node)};
    const uint32_t m = state->done[kind]++;
    if (kind == ACTION_F) {
        rank->forwards++;
        list->forward_end[node->first + m] = rank->free_at;
        find_forward(list, n);
        if (state->input_at == NEVER)
            find_input(list, n);
        if (node->after != NO_NODE && list->nodes[node->after].forward_at == NEVER) {
            find_forward(list, node->after);
            notify(list, problem->nodes[node->after].rank, list->nodes[node->after].forward_at);
        }
    } else if (kind == ACTION_I) {
        list->input_end[node->first + m] = rank->free_at;
        find_input(list, n);
        inputs_of(list, r)[rank->weights++] = n;
        if (node->before != NO_NODE && list->nodes[node->before].input_at == NEVER) {
            find_input(list, node->before);
            notify(list, problem->nodes[node->before].rank, list->nodes[node->before].input_at);
        }
    } else {
        rank->weights_made++;
    }
    set_wake(list, r, rank->made == problem->ranks[r].passes ? NEVER : rank->free_at);
}

/* The oldest microbatch that still has F to run on a rank, and the number of F for which the rank keeps memory free for
   it. Because every rank does so, the oldest microbatch of all can always continue, and ranks do not deadlock for
   memory (Dijkstra's banker's algorithm). */
typedef struct Reserve {
    uint32_t pipe, microbatch;
    /* F for which memory is kept free: the most nodes that any pipe has on this rank, less the F of this microbatch
       that this rank has run */
    int64_t nodes;
} Reserve;

static Reserve reserve_of(const SearchList *list, uint32_t r)
{
    const SearchProblem *problem = list->problem;
    const SearchRank *rank = &problem->ranks[r];
    Reserve reserve = {NO_NODE, 0, 0};
    uint64_t oldest = UINT64_MAX;
    for (uint32_t n = rank->first_node; n < rank->first_node + rank->node_count; n++) {
        const SearchNode *node = &problem->nodes[n];
        const uint32_t m = list->nodes[n].done[ACTION_F];
        if (node->rest == 0 && m < node->microbatches && (uint64_t)m * problem->pipe_count + node->pipe < oldest) {
            oldest = (uint64_t)m * problem->pipe_count + node->pipe;
            reserve = (Reserve){node->pipe, m, rank->most_nodes};
        }
    }
    for (uint32_t n = rank->first_node; n < rank->first_node + rank->node_count; n++)
        reserve.nodes -= problem->nodes[n].pipe == reserve.pipe && list->nodes[n].done[ACTION_F] > reserve.microbatch;
    return reserve;
}

typedef struct Choice {
    uint32_t node; /* NO_NODE: there is no pass to choose */
    uint8_t kind;
    int64_t priority, at;
} Choice;

static void consider(Choice *choice, uint32_t n, uint8_t kind, int64_t priority, int64_t at)
{
    if (choice->node == NO_NODE || priority < choice->priority || (priority == choice->priority && kind > choice->kind))
        *choice = (Choice){n, kind, priority, at};
}

/* Decides what a free rank does now: start a pass, wait for a pass whose input arrives at a known time, or sleep until
   such a time is known. */
static void decide(SearchList *list, uint32_t r, int64_t now)
{
    const SearchProblem *problem = list->problem;
    const SearchPolicy *policy = list->policy;
    const SearchRank *rank = &problem->ranks[r];
    RankState *state = &list->ranks[r];
    Choice here = {.node = NO_NODE}, coming = {.node = NO_NODE};
    /* next: the earliest known time after `now` at which the input of an I arrives, or of an F that memory and policy
       admit; first: the smallest priority of the F that have not run, and of the I that have not run but whose F has */
    int64_t next = NEVER, first = NEVER;
    bool full = false; /* some F has its input but not enough memory */
    const Reserve reserve = policy->bold || rank->node_count == 1 ? (Reserve){NO_NODE, 0, 0} : reserve_of(list, r);
    for (uint32_t n = rank->first_node; n < rank->first_node + rank->node_count; n++) {
        const SearchNode *node = &problem->nodes[n];
        const NodeState *at = &list->nodes[n];
        const int64_t input = at->done[ACTION_I] * problem->period + policy->input[n];
        const int64_t forward = at->done[ACTION_F] * problem->period + policy->forward[n];
        if (at->done[ACTION_I] < at->done[ACTION_F] && input < first)
            first = input;
        if (at->done[ACTION_F] < node->microbatches && forward < first)
            first = forward;
        if (at->input_at != NEVER) {
            consider(at->input_at <= now ? &here : &coming, n, ACTION_I, input, at->input_at);
            if (at->input_at > now && at->input_at < next)
                next = at->input_at;
        }
        if (at->forward_at == NEVER || at->done[ACTION_F] - at->done[ACTION_I] >= policy->held[n])
            continue;
        const bool is_oldest = node->pipe == reserve.pipe && at->done[ACTION_F] == reserve.microbatch;
        if (state->held + problem->memory[ACTION_F] * (reserve.nodes + !is_oldest) > rank->limit) {
            full = full || at->forward_at <= now;
            continue;
        }
        consider(at->forward_at <= now ? &here : &coming, n, ACTION_F, forward, at->forward_at);
        if (at->forward_at > now && at->forward_at < next)
            next = at->forward_at;
    }
    if (here.node != NO_NODE && here.priority - first > policy->ahead[r])
        here.node = NO_NODE;
    const uint32_t waiting = state->weights - state->weights_made;
    const uint32_t weight_node = waiting ? inputs_of(list, r)[state->weights_made] : NO_NODE;
    const int64_t weight_time = waiting ? time_of(list, weight_node, ACTION_W) : NEVER;
    const bool fits = waiting && next != NEVER && next - now >= weight_time;
    if (here.node != NO_NODE) {
        if (waiting > policy->waiting[r] && state->forwards < rank->passes / 3) {
            start(list, r, weight_node, ACTION_W, now);
        } else if (policy->patient_for_better && coming.node != NO_NODE && coming.priority < here.priority &&
                   coming.at - now < time_of(list, here.node, here.kind) && state->made &&
                   state->idle + coming.at - now <= policy->allowance[r]) {
            if (waiting && coming.at - now >= weight_time)
                start(list, r, weight_node, ACTION_W, now);
            else
                set_wake(list, r, coming.at);
        } else {
            start(list, r, here.node, here.kind, now);
        }
    } else if (waiting && (full || fits || next == NEVER || !policy->patient_before_weight ||
                           waiting > policy->waiting[r] || state->idle + next - now > policy->allowance[r])) {
        start(list, r, weight_node, ACTION_W, now);
    } else {
        set_wake(list, r, next);
    }
}

/* Runs the next pass of a given order, or waits for its input. */
static void repeat(SearchList *list, uint32_t r, int64_t now)
{
    const SearchRank *rank = &list->problem->ranks[r];
    const SearchPass pass = list->passes[rank->first + list->ranks[r].made];
    const uint32_t n = rank->first_node + pass.chunk;
    const int64_t at = pass.kind == ACTION_F   ? list->nodes[n].forward_at
                       : pass.kind == ACTION_I ? list->nodes[n].input_at
                                               : now;
    if (at <= now)
        start(list, r, n, pass.kind, now);
    else
        set_wake(list, r, at);
}

static bool run(SearchList *list, void (*turn)(SearchList *, uint32_t, int64_t), int64_t beat, SearchOrder *order)
{
    const SearchProblem *problem = list->problem;
    list->passes = order->passes;
    memset(list->ranks, 0, problem->rank_count * sizeof *list->ranks);
    memset(list->nodes, 0, problem->node_count * sizeof *list->nodes);
    for (uint32_t i = 0; i < 2 * list->leaves; i++)
        list->wake[i] = NEVER;
    for (uint32_t n = 0; n < problem->node_count; n++) {
        find_forward(list, n);
        find_input(list, n);
    }
    for (uint32_t r = 0; r < problem->rank_count; r++)
        set_wake(list, r, 0);
    while (list->wake[1] != NEVER) {
        const uint32_t r = next_rank(list);
        turn(list, r, list->wake[1]);
        if (problem->ranks[r].work + list->ranks[r].idle >= beat)
            return false;
    }
    order->cost = order->idle = 0;
    for (uint32_t r = 0; r < problem->rank_count; r++)
        if (list->ranks[r].made < problem->ranks[r].passes)
            return false;
    for (uint32_t r = 0; r < problem->rank_count; r++) {
        const int64_t cost = problem->ranks[r].work + list->ranks[r].idle;
        order->idle += list->ranks[r].idle;
        order->cost = cost > order->cost ? cost : order->cost;
    }
    return true;
}

bool search_list_run(SearchList *list, const SearchPolicy *policy, int64_t beat, SearchOrder *order)
{
    list->policy = policy;
    list->sight = policy->sight;
    return run(list, decide, beat, order);
}

bool search_list_replay(SearchList *list, int64_t beat, SearchOrder *order)
{
    list->sight = SIGHT_ALL;
    return run(list, repeat, beat, order);
}
