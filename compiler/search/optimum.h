#ifndef SEARCH_OPTIMUM_H
#define SEARCH_OPTIMUM_H

/* Proves by a SAT solver that no order of a placement is shorter than so much (`dpc --prove`), and finds a shorter one
   if there is one.

   The solver counts time in ticks. If there is a tick of which all times of the task are whole multiples, and the
   makespan is at most 4000 of them, the largest such tick is used, and every answer is exact. Otherwise a tick is
   1/4000 of the makespan, and all times are rounded down. No order takes longer with shorter times, so what the solver
   excludes is excluded for the real times, too: the bound holds, but it may stay a little below the optimum. */

#include "compiler/schedule/bound.h"

#include <stdatomic.h>

typedef struct OptimumTask {
    const Schedule *schedule; /* a placement, without updates (U) */
    const Costs *costs;
    const MemoryLimits *limits; /* [limit_count]: orders keep to all of them */
    uint32_t limit_count;
    bool overlap;     /* passes may be F, I, W, B and F&B. Otherwise only F, I and W */
    bool with_inputs; /* with `overlap`, F&I, too. They make the question much larger and gain little */
    /* [ranks]: no pass of the rank starts before, and the time of an order is the longest from here to the end of a
       rank. NULL: all 0, so that the time of an order is its makespan */
    const double *starts;
} OptimumTask;

/* The bound and the time of the shortest order so far. With rounded times the order may take longer. */
typedef struct OptimumProgress {
    double bound, makespan, seconds; /* seconds: since it began */
} OptimumProgress;

typedef struct OptimumControl {
    double seconds;                                                   /* after which it ends */
    const atomic_int *stop;                                           /* nonzero: it ends. NULL: never */
    void (*progress)(void *context, const OptimumProgress *progress); /* NULL: no reports */
    void *context;
} OptimumControl;

typedef struct Optimum {
    double bound;  /* no order takes less; at most the time of the known order */
    Order *orders; /* [ranks], if `found`: the shortest orders that the solver found. With rounded times their real time
                       may be the known one, or more */
    bool found;
    bool too_large; /* the question is too large for the solver: the bound is the old one */
} Optimum;

/* `known` is the time of an order of the task, and `bound` a bound of it. Orders get `span`; the arena owns them. */
Optimum optimum_find(const OptimumTask *task, double known, double bound, const OptimumControl *control, Span span,
                     Arena *arena);

#endif
