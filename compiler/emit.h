#ifndef COMPILER_EMIT_H
#define COMPILER_EMIT_H

/* The forms in which a schedule leaves the compiler as text. */

#include "compiler/plan.h"
#include "compiler/timeline.h"

#include <stdio.h>

/* The order in the text form of torch.distributed.pipelining (see csv.h), without or with its messages. */
void emit_csv(const Schedule *schedule, bool messages, FILE *stream);

/* One JSON object: schedule, ranks, microbatches, makespan, cost, bubble_rate, per_rank with start, end, busy,
   peak_activations. Times in the unit of the costs. cost is the largest end-start of a rank; bubble_rate is
   (cost - work) / cost with work the mean busy time of a rank. */
void emit_stats(const Schedule *schedule, const Timeline *timeline, const RankPlan *plans, FILE *stream);

#endif
