#pragma once

/* The gap between a makespan and its lower bound, and the memory limits that this bound is for. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/bound.h"

/* Writes the memory limits under which the lower bound of a makespan is computed: those of `order auto` (`searched`)
   and those of the command line (`memory`). NULL: none. A limit in bytes counts only if slots of saved activations
   have a size. If no limit counts, writes the most activations that each rank holds in the schedule's own orders.
   Returns the number of limits written, 1 to GAP_LIMITS. */
enum { GAP_LIMITS = 3 };
uint32_t gap_limits(const Schedule *schedule, const MemoryLimits *searched, const Memory *memory, Arena *arena,
                    MemoryLimits limits[GAP_LIMITS]);

/* Whether a limit of `memory` counts for gap_limits. */
bool gap_is_limited(const Memory *memory);

/* The gap between the makespan of the schedule's orders and its lower bound within the limits that gap_limits writes.
   */
Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena);
