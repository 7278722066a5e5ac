#ifndef SEARCH_SEARCH_H
#define SEARCH_SEARCH_H

/* Finds the order of a placement's passes (`order auto`). The zero-bubble papers schedule one chunk per rank with
   hand-made heuristics (Qi et al., ICLR 2024, section 3). This search takes any placement and improves on such
   heuristics. */

#include "compiler/schedule/timeline.h"

#include <stdatomic.h>

/* Memory of a pass in the papers' unit: half of the activations that a stage saves for a microbatch. I frees one half,
   W the other. */
enum { SEARCH_FORWARD = 2, SEARCH_INPUT = -1, SEARCH_WEIGHT = -1, SEARCH_EFFORT_MAX = 100000 };

typedef struct SearchTask {
    const Costs *costs;
    /* memory that F allocates on a rank (> 0), and that I and W free (<= 0), in any unit; the sum is 0 */
    int64_t forward, input, weight;
    const int64_t *memory; /* [ranks]: most memory that a rank may hold at once, at least search_least_memory */
    /* 1..SEARCH_EFFORT_MAX: how long to search. Counts work, not seconds, so every machine finds the same order */
    uint32_t effort;
    /* minimize the makespan; passes may also be F&Bs of an F and a full backward. Otherwise passes are F, I and W */
    bool overlap;
} SearchTask;

/* The progress of the search and its best result so far. */
typedef struct SearchProgress {
    uint32_t tried, planned; /* orders */
    double cost;             /* of the best order: the largest (end - start) of a rank; with `overlap` the makespan */
    double bound; /* lower bound: no order of this placement has a smaller cost under these costs and limits */
    bool overlap; /* as in the task */
} SearchProgress;

typedef struct SearchControl {
    const atomic_int *stop; /* nonzero: the search ends and returns the best order so far. NULL: never */
    void (*progress)(void *context, const SearchProgress *progress); /* called from time to time; NULL: no reports */
    void *context;
} SearchControl;

/* Fills in the orders of a placed schedule. Every pass gets `span`. On each chunk, F, I and W each run the microbatches
   in ascending order. `control` and `found` may be NULL. */
void search_order(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found);

/* The least memory with which the rank can hold one microbatch. If every rank has at least this much, an order
   exists. */
int64_t search_least_memory(const Schedule *schedule, uint32_t rank, int64_t forward);

#endif
