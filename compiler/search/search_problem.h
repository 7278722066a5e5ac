#ifndef SEARCH_SEARCH_PROBLEM_H
#define SEARCH_SEARCH_PROBLEM_H

/* The input of the search: a placement, its times in whole ticks, and the memory of every rank. Times are integers so
   that every machine finds the same order. */

#include "compiler/search/search.h"

enum { NO_NODE = UINT32_MAX };
#define NEVER INT64_MAX

/* A chunk of a rank. F, I and W each run the microbatches of a node in ascending order. */
typedef struct SearchNode {
    uint32_t rank, pipe, stage, microbatches;
    uint32_t before, after;          /* nodes of the stages before and after; NO_NODE: none */
    uint32_t home;                   /* of the nodes of this pipe on this rank, the one with the earliest stage */
    uint32_t rest;                   /* how many nodes of this pipe and rank have a later stage */
    int64_t from_before, from_after; /* transfer time of an activation from `before`, of a gradient from `after` */
    int64_t time[ACTION_W + 1];      /* of F, I and W; B unused */
    size_t first;                    /* index of microbatch 0 in arrays over (node, microbatch) */
    int64_t forward_path;            /* the earliest time at which the F of microbatch 0 can start */
    int64_t backward_path;           /* and its I */
} SearchNode;

typedef struct SearchRank {
    uint32_t first_node, node_count; /* by chunk */
    uint32_t passes;                 /* number of passes of all its nodes */
    uint32_t most_nodes;             /* the most nodes that this rank has of any one pipe */
    size_t first;                    /* its first index in arrays over all passes */
    int64_t work;                    /* time of all its passes */
    int64_t limit;
} SearchRank;

typedef struct SearchProblem {
    uint32_t rank_count, node_count, pipe_count;
    uint32_t stages; /* of a pipe */
    SearchRank *ranks;
    SearchNode *nodes;    /* rank after rank */
    size_t passes, cells; /* number of F, I and W in all; of (node, microbatch) pairs */
    int64_t memory[ACTION_W + 1];
    int64_t period; /* the longest time that a rank takes for one microbatch of each of its nodes */
    int64_t slot;   /* the mean time of a pass on the rank that takes longest */
    double ticks;   /* ticks in a unit of the costs */
    int64_t bound;  /* lower bound of the cost */
} SearchProblem;

/* A pass in a rank's order. Its microbatch is the number of passes of this kind and chunk before it. */
typedef struct SearchPass {
    uint8_t kind, chunk;
} SearchPass;

/* The orders of all ranks and their quality. A smaller cost is better; with equal costs, a smaller idle time. */
typedef struct SearchOrder {
    SearchPass *passes; /* [problem->passes]; those of rank r begin at ranks[r].first */
    int64_t cost;       /* the largest (end - start) of a rank */
    int64_t idle;       /* idle time between start and end of a rank, summed over all ranks */
} SearchOrder;

void search_problem_make(const Schedule *schedule, const SearchTask *task, Arena *arena, SearchProblem *problem);

/* Writes the order as actions of `schedule`, the schedule that the problem was made from. */
void search_order_write(const SearchProblem *problem, const SearchOrder *order, Span span, Arena *arena,
                        Schedule *schedule);

static inline uint32_t search_node_of(const SearchProblem *problem, uint32_t rank, uint8_t chunk)
{
    return problem->ranks[rank].first_node + chunk;
}

#endif
