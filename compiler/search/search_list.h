#ifndef SEARCH_SEARCH_LIST_H
#define SEARCH_SEARCH_LIST_H

/* List scheduling with a simulated clock. Whenever a rank is free, it takes the best pass that it can start now, or
   waits for a better one whose arrival time is known. */

#include "compiler/search/search_problem.h"

/* Which times list scheduling takes into account. With SIGHT_PASSES and SIGHT_SLOTS only a replay finds the real cost
   of the order. */
typedef enum SearchSight {
    SIGHT_ALL,
    SIGHT_PASSES, /* times of passes; messages take no time */
    SIGHT_SLOTS,  /* messages take no time and all passes take the same: published patterns consist of equal slots */
    SIGHTS
} SearchSight;

/* How a rank chooses its next pass. All times are in ticks. */
typedef struct SearchPolicy {
    /* [nodes]: F of microbatch m has priority m * period + forward, I has m * period + input; the smallest goes
       first */
    int64_t *forward, *input;
    /* [ranks]: a rank waits for a better pass only if all its idle time, with this wait, is at most this */
    int64_t *allowance;
    /* [ranks]: an F or I may start only if its priority exceeds the smallest priority of the F and I that the rank has
       not run by at most this much */
    int64_t *ahead;
    /* [ranks]: if more W than this are deferred, a W runs next instead of an F or I while F are left, and instead of a
       wait at any time */
    uint32_t *waiting;
    uint32_t *held;             /* [nodes]: most microbatches that have run F and not yet I */
    bool patient_for_better;    /* wait for a better F or I even if a worse one could start now */
    bool patient_before_weight; /* wait for any F or I even if a W could start now */
    /* reserve no memory for the oldest microbatch: ranks may deadlock */
    bool bold;
    SearchSight sight;
} SearchPolicy;

typedef struct SearchList SearchList; /* the state of a run */
SearchList *search_list_new(const SearchProblem *problem, Arena *arena);

/* Fills in `order`. False: the run ended early, as its cost cannot be smaller than `beat`; or the ranks deadlocked, as
   they may with a bold policy. Then `order` is not complete. */
bool search_list_run(SearchList *list, const SearchPolicy *policy, int64_t beat, SearchOrder *order);

/* Fills in the cost and idle time of the order that the last run made, with transfer times. False: the cost is not
   smaller than `beat`. */
bool search_list_replay(SearchList *list, int64_t beat, SearchOrder *order);

#endif
