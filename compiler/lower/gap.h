#ifndef LOWER_GAP_H
#define LOWER_GAP_H

/* Which memory the lower bound of a makespan is for. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/bound.h"

/* The gap between the makespan of the schedule's orders and its lower bound. The bound keeps to the memory limits in
   `searched` (those of `order auto`) and in `memory`; each may be NULL. If there are no limits, it keeps to the memory
   that the orders themselves hold. */
Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena);

#endif
