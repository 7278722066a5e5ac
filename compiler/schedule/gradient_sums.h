#pragma once

/* The sums of gradients over replicas of the whole pipeline (dprun --replicas), in the bytes and times of the costs.

   The gradient of a stage is summed over all its copies: those in the schedule, in every replica. A sum is ready when
   the last backward pass of all copies has ended; the programs post it there. A rank takes part in one sum at a time,
   in the order in which the sums become ready; its passes and messages run beside the sum at full speed. The time of
   sums after the last pass of the step adds to the makespan. An asynchronous program sums right before each U, so
   passes hide none of that time. */

#include "compiler/schedule/timeline.h"

typedef struct GradientSums {
    double bytes;  /* bytes that all ranks of one replica send for the sums */
    double time;   /* time of all sums together, one after the other */
    double hidden; /* the part of `time` before the end of the last pass of the step; 0 if asynchronous */
    double added;  /* what the sums add to the makespan */
} GradientSums;

/* The share of the sums' time that is hidden; 1 if they take no time. */
static inline double gradient_sums_hidden(const GradientSums *sums)
{
    return sums->time > 0 ? sums->hidden / sums->time : 1;
}

/* The sums over `replicas` replicas of the pipeline. `timeline` has the times of the schedule's passes and was made by
   timeline_run. */
GradientSums gradient_sums(const Schedule *schedule, const PassTable *table, const Timeline *timeline,
                           uint32_t replicas, Arena *arena);
