#ifndef SEARCH_PAIR_ORDER_H
#define SEARCH_PAIR_ORDER_H

/* Orders with F&Bs for the search with `overlap`: a list of passes per rank. On each chunk, F and the backwards each
   run the microbatches in ascending order, and W run in the order of the I. So kinds and chunks determine the order. */

#include "compiler/search/search_problem.h"

/* A pass: an F, I or W according to its kind. The kind ACTION_B means an F&B of an F and a full backward. */
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
    int64_t makespan; /* filled in by pair_run, as is `ends` */
    int64_t ends;     /* the sum of all ranks' end times */
} PairOrder;

typedef struct PairProblem {
    const SearchProblem *base;
    int64_t **pair; /* [rank][chunk of F * chunks + chunk of B]: time of an F&B */
    /* state of pair_run */
    uint32_t (*done)[ACTION_W + 1];   /* [nodes] */
    int64_t *forward_end, *input_end; /* [cells] */
    int64_t *free_at, *left;          /* [ranks]; left: time of the passes that the rank still has to run */
    uint32_t *position, *ready, *waiter, *next_waiter;
} PairProblem;

PairProblem pair_problem_new(const SearchProblem *base, const Schedule *schedule, const Costs *costs, Arena *arena);
PairOrder pair_order_new(const SearchProblem *base, Arena *arena);
void pair_order_copy(const SearchProblem *base, PairOrder *to, const PairOrder *from);

/* Whether the line of a rank is legal by itself: each pass once, F before backward before W, and memory within the
   limit. */
bool pair_line_check(const PairProblem *problem, uint32_t rank, PairLine *line);
/* Simulates lines that pair_line_check accepted. False: the ranks deadlock, or the makespan exceeds `most`. */
bool pair_run(const PairProblem *problem, PairOrder *order, int64_t most);

/* Converts an order of F, I and W. */
void pair_order_take(const SearchProblem *base, const SearchOrder *from, PairOrder *to);
/* Converts the orders of a schedule that has only F, I and W, each kind in order. */
void pair_order_read(const Schedule *schedule, PairOrder *to);
/* Writes the order as actions of the schedule that the problem was made from. */
void pair_order_write(const SearchProblem *base, const PairOrder *order, Span span, Arena *arena, Schedule *schedule);

#endif
