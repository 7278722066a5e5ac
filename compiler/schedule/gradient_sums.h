#ifndef SCHEDULE_GRADIENT_SUMS_H
#define SCHEDULE_GRADIENT_SUMS_H

/* The sums of gradients over replicas of the whole pipeline (dprun --replicas), in the bytes and times of the costs.

   All copies of a stage sum their gradients: those that the schedule itself has, in every replica. A sum begins as soon
   as the last backward pass of all copies is done, as the programs post it. A rank takes part in one sum at a time, in
   that order, and its passes and messages go on beside it at full speed. What is left after the last pass of the step
   adds to the makespan. An asynchronous program sums right before each U, so there nothing is hidden. */

#include "compiler/schedule/timeline.h"

typedef struct GradientSums {
    double bytes;  /* sent by all ranks of one replica */
    double time;   /* of all sums together */
    double hidden; /* the part of `time` before the last pass ends */
    double added;  /* to the makespan */
} GradientSums;

/* The hidden share of their time; 1 if they take none. */
static inline double gradient_sums_hidden(const GradientSums *sums)
{
    return sums->time > 0 ? sums->hidden / sums->time : 1;
}

/* `timeline` is a result of timeline_run. */
GradientSums gradient_sums(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                           uint32_t replicas, Arena *arena);

#endif
