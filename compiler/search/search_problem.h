#ifndef SEARCH_SEARCH_PROBLEM_H
#define SEARCH_SEARCH_PROBLEM_H

/* What the search works on: a placement, its times in whole ticks, the memory of every rank. Whole numbers, so that
   every machine finds the same order. */

#include "compiler/search/search.h"

enum { NO_NODE = UINT32_MAX };
#define NEVER INT64_MAX

/* A chunk of a rank. Each of F, I and W takes the microbatches of a node in order. */
typedef struct SearchNode {
    uint32_t rank, pipe, stage, microbatches;
    uint32_t before, after;          /* nodes of the stages before and after; NO_NODE: none */
    uint32_t home;                   /* the first node of this pipe on this rank in the order of stages */
    uint32_t rest;                   /* how many nodes of this pipe and rank follow in the order of stages */
    int64_t from_before, from_after; /* latency of what comes from there */
    int64_t time[ACTION_W + 1];      /* of F, I and W; B unused */
    size_t first;                    /* index of microbatch 0 in arrays over (node, microbatch) */
    int64_t forward_path;            /* when microbatch 0 can be here at the earliest */
    int64_t backward_path;           /* and come back */
} SearchNode;

typedef struct SearchRank {
    uint32_t first_node, node_count; /* by chunk */
    uint32_t passes;                 /* of all its nodes */
    uint32_t most_nodes;             /* of one pipe */
    size_t first;                    /* its place in arrays over all passes */
    int64_t work;                    /* time of all its passes */
    int64_t limit;
} SearchRank;

typedef struct SearchProblem {
    uint32_t rank_count, node_count, pipe_count;
    uint32_t stages; /* of a pipe */
    SearchRank *ranks;
    SearchNode *nodes;    /* rank after rank */
    size_t passes, cells; /* F, I and W of all; (node, microbatch) pairs */
    int64_t memory[ACTION_W + 1];
    int64_t period; /* the longest time that a rank takes for one microbatch of each of its nodes */
    int64_t slot;   /* that of a pass, if all took the same */
    double ticks;   /* in a unit of the costs */
    int64_t bound;  /* no order has a smaller cost */
} SearchProblem;

/* A pass in a rank's order; its microbatch follows from how many of the kind and chunk came before. */
typedef struct SearchPass {
    uint8_t kind, chunk;
} SearchPass;

/* Orders of all ranks and how good they are: the smaller cost first, then the smaller idle time. */
typedef struct SearchOrder {
    SearchPass *passes; /* [problem->passes], a rank's from ranks[r].first on */
    int64_t cost;       /* largest end - start of a rank */
    int64_t idle;       /* of all ranks, between start and end */
} SearchOrder;

void search_problem_make(const Schedule *schedule, const SearchTask *task, Arena *arena, SearchProblem *problem);

/* The same as actions of `schedule`, the one that the problem was made of. */
void search_order_write(const SearchProblem *problem, const SearchOrder *order, Span span, Arena *arena,
                        Schedule *schedule);

static inline uint32_t search_node_of(const SearchProblem *problem, uint32_t rank, uint8_t chunk)
{
    return problem->ranks[rank].first_node + chunk;
}

#endif
