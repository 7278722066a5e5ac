#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "compiler/lower/plan.h"

/* A proven and planned schedule as instruction streams: [ranks] plans. Behind the passes come the sums of gradients
   over the copies of each stage, in the order of stages on every rank, the norm, the updates. */
Program *lower(const Schedule *schedule, const RankPlan *plans, const Source *source, Arena *arena);

#endif
