#ifndef SEARCH_SEARCH_LIST_H
#define SEARCH_SEARCH_LIST_H

/* List scheduling over a simulated clock: whenever a rank is free it takes the best pass that it can start or see
   coming. */

#include "compiler/search/search_problem.h"

/* What it decides by. Where that is not all, the order's cost is only found by replay. */
typedef enum SearchSight {
    SIGHT_ALL,
    SIGHT_PASSES, /* messages take no time */
    SIGHT_SLOTS,  /* nor do passes differ: the patterns that are published are made of equal slots */
    SIGHTS
} SearchSight;

/* How it chooses. All times in ticks. */
typedef struct SearchPolicy {
    /* [nodes]: F of microbatch m has priority m * period + forward, and I has input; smaller first */
    int64_t *forward, *input;
    /* [ranks]: how long a rank may be idle, in all, to wait for what is better than what it has */
    int64_t *allowance;
    /* [ranks]: how much worse than the best of all that is still to come here what it does may be */
    int64_t *ahead;
    uint32_t *waiting;          /* [ranks]: most W that may wait when there is a choice, while F are left */
    uint32_t *held;             /* [nodes]: most microbatches between F and I */
    bool patient_for_better;    /* it waits for a better F or I when it could begin a worse one, */
    bool patient_before_weight; /* for any F or I when it could begin a W */
    /* it keeps nothing free for the oldest microbatch: ranks may deadlock */
    bool bold;
    SearchSight sight;
} SearchPolicy;

typedef struct SearchList SearchList; /* what a run works with */
SearchList *search_list_new(const SearchProblem *problem, Arena *arena);

/* Fills in `order`. False when its cost cannot be better than `beat`: it ended early. */
bool search_list_run(SearchList *list, const SearchPolicy *policy, int64_t beat, SearchOrder *order);

/* Fills in cost and idle time of the order that the last run has made, with the latencies. False as above. */
bool search_list_replay(SearchList *list, int64_t beat, SearchOrder *order);

#endif
