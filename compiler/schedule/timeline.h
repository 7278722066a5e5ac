#ifndef SCHEDULE_TIMELINE_H
#define SCHEDULE_TIMELINE_H

/* When every pass runs, if each takes its modelled time and starts as soon as its rank is free and what it needs is
   there. */

#include "compiler/schedule/passes.h"
#include "runtime/program/costs.h"

/* A rank at a halt: its order cannot go on at `position` (== the order's count: it came to its end). */
typedef struct Timeline {
    double **start, **end; /* [rank][position]; the halves of an F&B share both; messages have none */
    uint32_t *position;    /* [rank]: where each rank's order ended or halted */
    double makespan;       /* from the first start, which is 0, to the last end */
    const Costs *costs;    /* under which it was made */
} Timeline;

/* False in a deadlock: `position` then says where each rank halts. Linear. */
bool timeline_run(const Schedule *schedule, const PassTable *table, const Costs *costs, Arena *arena,
                  Timeline *timeline);
/* The same where every pass has a time of its own, [rank][position]: an F&B takes the sum of its halves' times.
   Messages cost what `costs` say. */
bool timeline_run_measured(const Schedule *schedule, const PassTable *table, const Costs *costs,
                           const double *const *measured, Arena *arena, Timeline *timeline);

/* When what a pass needs of others has arrived on its rank, and where it is made: by a pass of another stage, or for an
   update by the last pass before it of the other copy that comes last. < 0: it needs nothing. */
double timeline_arrival(const Schedule *schedule, const PassTable *table, const Timeline *timeline, uint32_t rank,
                        const Action *pass, Dependence *needed);

/* The pass before a position on its rank, a half of an F&B counting as its F; POSITION_NONE: there is none. */
uint32_t timeline_before(const Order *order, uint32_t position);

typedef struct RankTimes {
    double start, end, busy;
} RankTimes;
RankTimes timeline_rank(const Schedule *schedule, const Timeline *timeline, uint32_t rank);

/* How much of the time ranks do not work. */
typedef struct Bubble {
    double cost;         /* largest end - start of a rank */
    double work;         /* mean busy time of a rank */
    double largest_work; /* largest busy time of a rank */
    double rate;         /* (cost - work) / cost */
} Bubble;
Bubble timeline_bubble(const Schedule *schedule, const Timeline *timeline);

/* What makes the bubble. The first two are shares of the cost that the same order has where messages take no time; they
   add up to its rate there. */
typedef struct BubbleCauses {
    double imbalance; /* (largest_work - work) / cost: some ranks have less work than others */
    double order;     /* (cost - largest_work) / cost: the rank with the most work waits, too */
    double messages;  /* time that messages add to the makespan */
} BubbleCauses;
/* `timeline` is one of timeline_run. */
BubbleCauses timeline_bubble_causes(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                                    Arena *arena);

#endif
