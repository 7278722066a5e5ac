#ifndef COMPILER_SEARCH_H
#define COMPILER_SEARCH_H

/* Finds the order of a placement's passes: what `order auto` stands for. The zero-bubble papers schedule one chunk a rank by hand-made
   heuristics (Qi et al., ICLR 2024, section 3); this one takes any placement, and goes on looking. */

#include "compiler/timeline.h"

#include <signal.h>

/* What F takes of a rank's memory, and I and W give back, in any unit; together they are 0. */
typedef struct SearchLimits {
    int64_t forward, input, weight;
    const int64_t *memory; /* [ranks]: most that a rank may hold at once */
} SearchLimits;

/* The papers' unit: half the activation that a stage keeps for a microbatch. I frees one half, W the other. */
enum { SEARCH_FORWARD = 2, SEARCH_INPUT = -1, SEARCH_WEIGHT = -1 };

/* How far the search is and what it has. */
typedef struct SearchProgress {
    uint32_t tried, planned; /* orders */
    double cost;             /* of the best: largest end - start of a rank */
    double bound;            /* no order of this placement under these costs and limits has a smaller one */
} SearchProgress;

typedef struct SearchControl {
    uint32_t effort;                     /* how long to look, from 1 on, in work and not in seconds: every machine finds the same */
    const volatile sig_atomic_t *stop;   /* set: the best so far is taken. NULL: never */
    void (*progress)(void *context, const SearchProgress *progress); /* now and then; NULL: not asked for */
    void *context;
} SearchControl;

/* Fills in the orders of a schedule that place has made, every pass with `span`. Passes are F, I and W; each takes the microbatches
   of a chunk in order. Costs of single passes and of an F&B do not matter to it. False when `*rank` cannot hold one microbatch:
   it needs `*least`. `result` may be NULL. */
bool search_order(Schedule *schedule, const Costs *costs, const SearchLimits *limits, const SearchControl *control, Span span,
                  Arena *arena, SearchProgress *result, uint32_t *rank, int64_t *least);

#endif
