#pragma once

/* The predicted time of each pass. A pass takes the time that the costs give, and starts as soon as its rank is free
   and its inputs have arrived. An output is sent as soon as it is computed or, in an order that is written with its
   messages, after the last pass before its SEND (passes_take_sends). */

#include "compiler/schedule/passes.h"
#include "program/times/costs.h"

/* The times of all passes. */
typedef struct Timeline {
    double **start, **end; /* [rank][position]; the halves of an F&B or F&F share both; messages have none */
    /* [rank]: the number of actions in the rank's order if it has finished; in a deadlock, the position of the pass at
       which it waits */
    uint32_t *position;
    double makespan;    /* from the first start, which is 0, to the last end */
    const Costs *costs; /* the costs from which the times were computed */
} Timeline;

/* Simulates the schedule, in linear time. False: the ranks deadlock; `position` then has the pass at which each rank
   waits. */
bool timeline_run(const Schedule *schedule, const PassTable *table, const Costs *costs, Arena *arena,
                  Timeline *timeline);
/* Like timeline_run, but passes take their measured times, [rank][position]: an F&B or F&F takes the sum of the times
   of its halves. Messages take their time of `costs`. */
bool timeline_run_measured(const Schedule *schedule, const PassTable *table, const Costs *costs,
                           const double *const *measured, Arena *arena, Timeline *timeline);

/* The time at which the input arrives that `pass` needs from another stage, on this rank or another; sets `needed` to
   the pass after which the input is sent, which is the one that computes it if outputs are sent at once. For a U: the
   time at which the last other rank with a copy of the stage reaches its U; sets `needed` to the last pass before that
   U. < 0: `pass` waits for no other stage or rank, and `needed` is not set. */
double timeline_arrival(const Schedule *schedule, const PassTable *table, const Timeline *timeline, uint32_t rank,
                        const Action *pass, Dependence *needed);

/* The position of the pass or U before `position` in an order; of an F&B or F&F, the position of its first half.
   POSITION_NONE: there is none. */
uint32_t timeline_before(const Order *order, uint32_t position);

typedef struct RankTimes {
    double start, end, busy;
} RankTimes;
RankTimes timeline_rank(const Schedule *schedule, const Timeline *timeline, uint32_t rank);

/* The bubble. `rate` is the share of `cost` in which ranks do not work, as a mean over all ranks. */
typedef struct Bubble {
    double cost;         /* the longest time of a rank from its first start to its last end */
    double work;         /* mean busy time of a rank */
    double largest_work; /* largest busy time of a rank */
    double rate;         /* (cost - work) / cost */
} Bubble;
Bubble timeline_bubble(const Schedule *schedule, const Timeline *timeline);

/* The causes of the bubble. `imbalance` and `order` are computed for the same order with messages that take no time.
   Their sum is the bubble rate of that timeline. */
typedef struct BubbleCauses {
    /* (largest work of a rank - mean work of the ranks) / cost: some ranks have less work than others */
    double imbalance;
    double order;    /* (cost - largest work of a rank) / cost: even the rank with the most work waits */
    double messages; /* time that messages add to the makespan */
} BubbleCauses;
/* `timeline` is a result of timeline_run. */
BubbleCauses timeline_bubble_causes(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                                    Arena *arena);
