#pragma once

/* The input of the search: a placement, its times in whole ticks, and the memory of every rank. Times are integers so
   that the search finds the same order on every machine. */

#include "compiler/search/search_task.h"

enum { NO_NODE = UINT32_MAX };
#define NEVER INT64_MAX

/* A chunk of a rank. Its F run the microbatches in ascending order, and so do its I and its W. */
typedef struct SearchNode {
    uint32_t rank, pipe, stage, microbatches;
    uint32_t before, after; /* nodes of the stages before and after; NO_NODE: none */
    uint32_t home;          /* index of the node with the earliest stage among those of this pipe on this rank */
    uint32_t rest;          /* number of nodes of this pipe on this rank with a later stage */
    /* from_before: transfer time of an activation from `before`; from_after: of a gradient from `after` */
    int64_t from_before, from_after;
    int64_t time[ACTION_W + 1]; /* [kind]: time of the node's F, B, I and W; only the search with F&Bs uses the B */
    size_t first;               /* index of its microbatch 0 in arrays with an element per node and microbatch */
    int64_t forward_path;       /* the earliest time at which the F of microbatch 0 can start on this node */
    int64_t backward_path;      /* the earliest time at which the I of microbatch 0 can start on this node */
} SearchNode;

typedef struct SearchRank {
    uint32_t first_node, node_count; /* by chunk */
    uint32_t passes;                 /* number of passes of all its nodes */
    uint32_t most_nodes;             /* the largest number of nodes of one pipe on this rank */
    /* index of the rank's first pass in arrays with an element per pass of all ranks */
    size_t first;
    int64_t work; /* total time of the F, I and W of all its nodes */
    int64_t limit;
} SearchRank;

typedef struct SearchProblem {
    uint32_t rank_count, node_count, pipe_count;
    uint32_t stages; /* of a pipe */
    SearchRank *ranks;
    SearchNode *nodes;    /* the nodes of rank 0, then those of rank 1, and so on */
    size_t passes, cells; /* passes: number of F, I and W of all ranks; cells: number of (node, microbatch) pairs */
    int64_t memory[ACTION_W + 1];
    /* time of the F, I and W of one microbatch on all nodes of a rank together, for the rank with the longest such
       time */
    int64_t period;
    int64_t slot;  /* mean time of one pass on the rank whose time is `period` */
    double ticks;  /* ticks per unit of the costs */
    int64_t bound; /* in ticks: no order has a smaller SearchOrder.cost */
} SearchProblem;

/* A pass in the order of a rank. Its microbatch is the number of earlier passes of the same kind and chunk. */
typedef struct SearchPass {
    uint8_t kind, chunk;
} SearchPass;

/* The orders of all ranks and their quality: a smaller cost is better, and with equal costs a smaller idle time. */
typedef struct SearchOrder {
    SearchPass *passes; /* [problem->passes]; those of rank r begin at ranks[r].first */
    int64_t cost;       /* in ticks: the largest (end - start) of a rank */
    int64_t idle;       /* in ticks: idle time between start and end of a rank, summed over all ranks */
} SearchOrder;

void search_problem_make(const Schedule *schedule, const SearchTask *task, Arena *arena, SearchProblem *problem);

/* Writes the order as actions of `schedule`, which is the schedule that the problem was made from, or a copy of it. */
void search_order_write(const SearchProblem *problem, const SearchOrder *order, Span span, Arena *arena,
                        Schedule *schedule);

/* Whether a B takes less time than an I and a W. */
static inline bool search_full_is_shorter(const SearchNode *node)
{
    return node->time[ACTION_B] < node->time[ACTION_I] + node->time[ACTION_W];
}

static inline uint32_t search_node_of(const SearchProblem *problem, uint32_t rank, uint8_t chunk)
{
    return problem->ranks[rank].first_node + chunk;
}
