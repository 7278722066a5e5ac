#pragma once

/* List scheduling with a simulated clock. Whenever a rank is free, it takes the best pass that it can start now, or
   waits for a better one whose arrival time is known. */

#include "compiler/search/search_problem.h"

/* Which times list scheduling takes into account. After a run with SIGHT_PASSES or SIGHT_SLOTS only a replay finds the
   real cost of the order. */
typedef enum SearchSight {
    SIGHT_ALL,
    SIGHT_PASSES, /* times of passes; messages take no time */
    /* messages take no time and all passes take the same time, because published patterns consist of equal slots */
    SIGHT_SLOTS,
    SIGHTS
} SearchSight;

/* How a rank chooses its next pass. All times are in ticks. */
typedef struct SearchPolicy {
    /* [nodes]: the F of microbatch m has priority m * period + forward, its I m * period + input; the pass with the
       smallest number goes first */
    int64_t *forward, *input;
    /* [ranks]: a rank waits for a better pass only if its idle time so far, with this wait, is at most this */
    int64_t *allowance;
    /* [ranks]: the F and I that the rank may run next are, for each chunk, the next F and the next I whose F has run.
       One of them may start only if its priority is at most this much above the smallest of their priorities */
    int64_t *ahead;
    /* [ranks]: the rank may defer this many W. With more, it runs a W instead of an F or I while some of its F have not
       run, and at any time instead of waiting for an F or I */
    uint32_t *waiting;
    uint32_t *held;             /* [nodes]: most microbatches whose F has run and whose I has not */
    bool patient_for_better;    /* wait for a better F or I even if a worse one could start now */
    bool patient_before_weight; /* wait for any F or I even if a W could start now */
    /* keep no memory free for the oldest microbatch; ranks may then deadlock */
    bool bold;
    SearchSight sight;
} SearchPolicy;

typedef struct SearchList SearchList; /* the working memory of list scheduling */
SearchList *search_list_new(const SearchProblem *problem, Arena *arena);

/* Makes an order under the policy. False: `order` must not be used. Either its cost would not be smaller than `beat`,
   or the ranks deadlocked. They may deadlock with a bold policy. */
bool search_list_run(SearchList *list, const SearchPolicy *policy, int64_t beat, SearchOrder *order);

/* Simulates the passes of `order` with all times, also of transfers, and fills in its cost and idle time. False: the
   cost is not smaller than `beat`, or the ranks deadlocked. */
bool search_list_replay(SearchList *list, int64_t beat, SearchOrder *order);
