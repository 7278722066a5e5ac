#ifndef LOWER_GAP_H
#define LOWER_GAP_H

/* Which memory the lower bound of a makespan is for. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/bound.h"

/* Of a schedule with orders. The memory is that of `searched`, the limits of `order auto`, and that of `memory`;
   without any limit what the orders themselves hold. Both may be NULL. */
Gap gap_of(const Schedule *schedule, const Costs *costs, double makespan, const MemoryLimits *searched,
           const Memory *memory, Arena *arena);

#endif
