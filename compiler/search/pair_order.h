#pragma once

/* Orders with F&Bs, for the search with `overlap`: a list of passes per rank. The F of a chunk run the microbatches in
   ascending order, and so do its backwards; W run in the order of the I. So a list needs only the kinds and chunks of
   the passes. */

#include "compiler/search/search_problem.h"

/* An F, I or W; or, with kind ACTION_B, an F&B, which computes both gradients. A B outside an F&B ("B alone") is two
   passes: an I with the mark `full` and its W. So each change of an order that moves I and W moves B, too. */
typedef struct PairPass {
    uint8_t kind, chunk;
    union {
        uint8_t backward; /* of an F&B: the chunk of its backward half */
        bool full;        /* of an I: it and the W of its microbatch, which comes next, are one B */
    };
} PairPass;

typedef struct PairLine {
    PairPass *passes; /* has room for as many passes as the rank has F, I and W */
    uint32_t count;
    int64_t work; /* time of its passes in ticks; set by pair_line_check */
} PairLine;

typedef struct PairOrder {
    PairLine *lines;  /* [ranks] */
    int64_t makespan; /* in ticks; set by pair_run, as is `ends` */
    int64_t ends;     /* the sum of the end times of all ranks */
} PairOrder;

typedef struct PairProblem {
    const SearchProblem *base;
    /* [rank][chunk of F * chunks + chunk of B], in ticks. pair: time of an F&B until its results can be sent; put_off:
       time, after that, of the weight gradients that its recipe puts off */
    int64_t **pair, **put_off;
    bool has_full; /* a B of some chunk takes less time than its I and W */
    /* true: pair_run ignores the positions of the W in a line. A W runs in a gap where it delays no other pass, or when
       an F needs its memory, or after the last F and I. `filled` gets the order with these W. The lines have no B
       alone. pair_line_check does not check memory. */
    bool fills;
    PairOrder filled;
    uint32_t *unfilled; /* [ranks]: no I before this index of the line waits for its W */
    int64_t *held;      /* [ranks]: memory in use */
    /* working memory of pair_run */
    uint32_t (*done)[ACTION_W + 1];   /* [nodes] */
    int64_t *forward_end, *input_end; /* [cells] */
    int64_t *free_at, *left;          /* [ranks]; left: time of the passes that the rank has not run yet */
    uint32_t *position, *ready, *waiter, *next_waiter;
} PairProblem;

PairProblem pair_problem_new(const SearchProblem *base, const Schedule *schedule, const Costs *costs, Arena *arena);
PairOrder pair_order_new(const SearchProblem *base, Arena *arena);
void pair_order_copy(const SearchProblem *base, PairOrder *to, const PairOrder *from);

/* Whether the line of a rank is legal by itself: each pass once, F before backward before W, and memory within the
   limit. If another pass than its W follows an I with the mark `full`, clears the mark. Also sets line->work. */
bool pair_line_check(const PairProblem *problem, uint32_t rank, PairLine *line);
/* Simulates an order whose lines pair_line_check has accepted. False: the ranks deadlock, the makespan exceeds
   `most`, or, if problem->fills, a rank lacks memory for an F. */
bool pair_run(const PairProblem *problem, PairOrder *order, int64_t most);

/* Converts an order of F, I and W into lines. Does not set PairLine.work. */
void pair_order_take(const SearchProblem *base, const SearchOrder *from, PairOrder *to);
/* Sets the mark `full` of every I: to `full` if the next pass is a W of the same chunk, otherwise to false. */
void pair_order_fill(const SearchProblem *base, bool full, PairOrder *order);
/* Converts the orders of a schedule of F, I and W in which each kind of pass of a chunk runs the microbatches in
   ascending order. */
void pair_order_read(const Schedule *schedule, PairOrder *to);
/* Writes the order as actions of the schedule that the problem was made from. */
void pair_order_write(const SearchProblem *base, const PairOrder *order, Span span, Arena *arena, Schedule *schedule);
