#ifndef SCHEDULE_CRITICAL_PATH_H
#define SCHEDULE_CRITICAL_PATH_H

/* The critical path: the chain of passes that determines the makespan. Each starts when the one before it ends, or
   when its message arrives. Only a shorter pass on this chain can shorten the timeline. */

#include "compiler/schedule/timeline.h"

typedef struct CriticalPass {
    /* for an F&B: the half whose result the next pass of the path needs; the F if the next pass waits only for the
       rank */
    uint32_t rank, position;
} CriticalPass;

/* Writes the passes of a critical path in the order of time and returns their number. The arena owns the memory. If
   there are several critical paths, this is one of them. */
uint32_t critical_path(const Schedule *schedule, const PassTable *table, const Timeline *times, Arena *arena,
                       CriticalPass **path);

#endif
