#ifndef LOWER_GAP_H
#define LOWER_GAP_H

/* Which memory the lower bound of a makespan is for. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/bound.h"

/* Writes the memory limits to which the lower bound of a makespan keeps: those in `searched` (of `order auto`) and in
   `memory`; each may be NULL. If there are no limits, it writes the memory that the orders themselves hold. Returns the
   number of limits, at least 1. */
enum { GAP_LIMITS = 3 };
uint32_t gap_limits(const Schedule *schedule, const MemoryLimits *searched, const Memory *memory, Arena *arena,
                    MemoryLimits limits[GAP_LIMITS]);

/* The gap between the makespan of the schedule's orders and its lower bound within these limits. */
Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena);

#endif
