#pragma once

/* What a search of orders gets and reports: its task, its progress, and how it is stopped. */

#include "compiler/schedule/timeline.h"

#include <stdatomic.h>

/* Memory of a pass in the unit of the zero-bubble papers, which is half of the activations that a stage saves for a
   microbatch: F takes both halves, I frees one, W the other. */
enum { SEARCH_FORWARD = 2, SEARCH_INPUT = -1, SEARCH_WEIGHT = -1, SEARCH_EFFORT_MAX = 100000 };

typedef struct SearchTask {
    const Costs *costs;
    /* memory that F allocates on a rank (> 0), and that I and W free (<= 0), in any unit; the sum is 0 */
    int64_t forward, input, weight;
    /* [ranks]: most memory that a rank may use at once, in the unit of `forward`; at least search_least_memory */
    const int64_t *memory;
    /* 1..SEARCH_EFFORT_MAX: how long to search. Counts work, not seconds, so every machine finds the same order */
    uint32_t effort;
    /* passes may be F, B, I, W and F&Bs, and the makespan is minimized; false: passes are F, I and W, and the largest
       (end - start) of a rank is minimized */
    bool overlap;
} SearchTask;

/* The progress of the search, and the cost of its best order so far. */
typedef struct SearchProgress {
    uint32_t tried, planned; /* orders */
    /* of the best order, in the unit of the costs: the largest (end - start) of a rank; with `overlap` the makespan */
    double cost;
    double bound; /* lower bound: no order of this placement has a smaller cost under these costs and limits */
    bool overlap; /* overlap of the task */
} SearchProgress;

typedef struct SearchControl {
    /* nonzero: the search ends as soon as it has an order, and returns the best one so far. NULL: it cannot be
       stopped */
    const atomic_int *stop;
    void (*progress)(void *context, const SearchProgress *progress); /* called from time to time; NULL: no reports */
    void *context;
} SearchControl;
