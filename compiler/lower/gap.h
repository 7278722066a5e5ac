#ifndef LOWER_GAP_H
#define LOWER_GAP_H

/* Which memory the lower bound of a makespan is for. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/bound.h"

/* The memory limits for which a makespan has a bound: those in `searched` (of `order auto`) and in `memory`, each of
   which may be NULL. If there are none, what the orders themselves hold. Returns how many there are, at least 1. */
enum { GAP_LIMITS = 3 };
uint32_t gap_limits(const Schedule *schedule, const MemoryLimits *searched, const Memory *memory, Arena *arena,
                    MemoryLimits limits[GAP_LIMITS]);

/* The gap between the makespan of the schedule's orders and its lower bound within these limits. */
Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena);

#endif
