#ifndef LOWER_GAP_H
#define LOWER_GAP_H

/* Which memory the lower bound of a makespan is for. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/bound.h"

/* Writes the memory limits under which the lower bound of a makespan is computed: those in `searched` (of `order auto`)
   and those in `memory`. Each of the two may be NULL. A limit in bytes counts only if context or stash slots have a
   size. If there is no limit that counts, writes what the schedule's own orders hold at most. Returns the number of
   limits written, 1 to GAP_LIMITS. */
enum { GAP_LIMITS = 3 };
uint32_t gap_limits(const Schedule *schedule, const MemoryLimits *searched, const Memory *memory, Arena *arena,
                    MemoryLimits limits[GAP_LIMITS]);

/* The gap between the makespan of the schedule's orders and its lower bound within these limits. */
Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena);

#endif
