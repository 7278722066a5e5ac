#ifndef SEARCH_PAIR_ORDER_H
#define SEARCH_PAIR_ORDER_H

/* Orders with F&Bs, as the search with `overlap` changes them: a list of passes per rank. Each of F and backward takes
   the microbatches of a chunk in order, W those of its I, so a list of kinds and chunks says everything. */

#include "compiler/search/search_problem.h"

/* Kinds of PairPass: ACTION_F, ACTION_I, ACTION_W, and ACTION_B for an F&B of an F and a full backward. */
typedef struct PairPass {
    uint8_t kind, chunk;
    uint8_t backward; /* the chunk of the backward half of an F&B */
} PairPass;

typedef struct PairLine {
    PairPass *passes; /* room for the rank's F, I and W */
    uint32_t count;
    int64_t work; /* time of its passes. Filled in by pair_line_check */
} PairLine;

typedef struct PairOrder {
    PairLine *lines;  /* [ranks] */
    int64_t makespan; /* filled in by pair_run, as is the sum of all ranks' ends */
    int64_t ends;
} PairOrder;

typedef struct PairProblem {
    const SearchProblem *base;
    int64_t **pair; /* [rank][chunk of F * chunks + chunk of B]: time of an F&B */
    /* to work with */
    uint32_t (*done)[ACTION_W + 1];   /* [nodes] */
    int64_t *forward_end, *input_end; /* [cells] */
    int64_t *free_at, *left;          /* [ranks]; left: work that a rank still has to do */
    uint32_t *position, *ready, *waiter, *next_waiter;
} PairProblem;

PairProblem pair_problem_new(const SearchProblem *base, const Schedule *schedule, const Costs *costs, Arena *arena);
PairOrder pair_order_new(const SearchProblem *base, Arena *arena);
void pair_order_copy(const SearchProblem *base, PairOrder *to, const PairOrder *from);

/* Whether a rank alone can run its line: each pass once, F before backward before W, and never more than its memory. */
bool pair_line_check(const PairProblem *problem, uint32_t rank, PairLine *line);
/* Simulates lines that pair_line_check has accepted. False: the ranks deadlock, or the makespan is above `most`. */
bool pair_run(const PairProblem *problem, PairOrder *order, int64_t most);

/* An order of F, I and W. */
void pair_order_take(const SearchProblem *base, const SearchOrder *from, PairOrder *to);
/* The orders of a schedule whose passes are F, I and W, each kind in order. */
void pair_order_read(const Schedule *schedule, PairOrder *to);
/* As the actions of the schedule that the problem was made of. */
void pair_order_write(const SearchProblem *base, const PairOrder *order, Span span, Arena *arena, Schedule *schedule);

#endif
