#pragma once

/* Proves with a SAT solver a lower bound of the makespan of all orders of a placement (`dpc --prove`), and finds
   shorter orders.

   The solver counts time in ticks. If all times of the task are whole multiples of a tick with at most six decimal
   digits, and the known order takes at most 4000 of the largest such tick, the solver uses that tick, and every answer
   is exact. Otherwise a tick is 1/4000 of the time of the known order, and all times are rounded down to whole ticks.
   Shorter times never make an order longer. So if the solver excludes a makespan for the rounded times, it is excluded
   for the real times too: the bound holds, but it may stay a little below the optimum. */

#include "compiler/schedule/bound.h"

#include <stdatomic.h>

typedef struct OptimumTask {
    /* gives the placement and the microbatches; its orders do not matter; it must have no U */
    const Schedule *schedule;
    const Costs *costs;
    const MemoryLimits *limits; /* [limit_count]: every order must keep within all of these limits */
    uint32_t limit_count;
    bool overlap;     /* passes may be F, I, W, B and F&B; otherwise only F, I and W */
    bool with_inputs; /* with `overlap`: passes may be F&I too, which makes the question much larger and gains little */
    /* [ranks]: the earliest start of each rank. The time of an order is then the largest time from the earliest start
       of a rank to its end. NULL: all 0, so that the time of an order is its makespan */
    const double *starts;
} OptimumTask;

/* The bound, and the time of the shortest order so far. If times are rounded down, that order may really take
   longer. */
typedef struct OptimumProgress {
    double bound, makespan, seconds; /* seconds: time since the search began */
} OptimumProgress;

typedef struct OptimumControl {
    double seconds;         /* the time limit */
    const atomic_int *stop; /* a nonzero value ends the search; NULL: nothing ends it */
    void (*progress)(void *context, const OptimumProgress *progress); /* NULL: no reports */
    void *context;
} OptimumControl;

typedef struct Optimum {
    double bound; /* no order of the task takes less time than this */
    /* [ranks], if `found`: the shortest orders that the solver found. If times are rounded down, they may really take
       as long as the known order, or longer */
    Order *orders;
    bool found;
    /* the question is too large, so the solver was not asked. `bound` then rests on the bound given to optimum_find
       alone */
    bool too_large;
} Optimum;

/* `known` is the time of an order of the task, and `bound` a lower bound of all orders. The actions of the orders get
   `span`; the arena owns them. */
Optimum optimum_find(const OptimumTask *task, double known, double bound, const OptimumControl *control, Span span,
                     Arena *arena);
