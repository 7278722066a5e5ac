#ifndef SEARCH_SEARCH_H
#define SEARCH_SEARCH_H

/* Finds the order of a placement's passes: what `order auto` stands for. The zero-bubble papers schedule one chunk a
   rank by hand-made heuristics (Qi et al., ICLR 2024, section 3); this one takes any placement, and goes on looking. */

#include "compiler/schedule/timeline.h"

#include <stdatomic.h>

/* The papers' unit: half the activation that a stage keeps for a microbatch. I frees one half, W the other. */
enum { SEARCH_FORWARD = 2, SEARCH_INPUT = -1, SEARCH_WEIGHT = -1, SEARCH_EFFORT_MAX = 100000 };

typedef struct SearchTask {
    const Costs *costs;
    /* what F takes of a rank's memory, and I and W give back, in any unit; together they are 0 */
    int64_t forward, input, weight;
    const int64_t *memory; /* [ranks]: most that a rank may hold at once, at least search_least_memory */
    /* 1..SEARCH_EFFORT_MAX: how long to look, in work and not in seconds: every machine finds the same */
    uint32_t effort;
    /* passes may also be F&Bs of an F and a full backward, and the makespan counts; otherwise passes are F, I and W */
    bool overlap;
} SearchTask;

/* How far the search is and what it has. */
typedef struct SearchProgress {
    uint32_t tried, planned; /* orders */
    double cost;             /* of the best: largest end - start of a rank; with `overlap` the makespan */
    double bound;            /* no order of this placement under these costs and limits has a smaller one */
    bool overlap;            /* as in the task */
} SearchProgress;

typedef struct SearchControl {
    const atomic_int *stop;                                          /* set: the best so far is taken. NULL: never */
    void (*progress)(void *context, const SearchProgress *progress); /* now and then; NULL: not asked for */
    void *context;
} SearchControl;

/* Fills in the orders of a schedule that place has made, every pass with `span`. Each of F, I and W takes the
   microbatches of a chunk in order. `control` and `found` may be NULL. */
void search_order(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found);

/* With less a rank cannot hold one microbatch; with as much on every rank there is an order. */
int64_t search_least_memory(const Schedule *schedule, uint32_t rank, int64_t forward);

#endif
