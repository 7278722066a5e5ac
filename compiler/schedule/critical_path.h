#ifndef SCHEDULE_CRITICAL_PATH_H
#define SCHEDULE_CRITICAL_PATH_H

/* The critical path: the chain of passes that determines the makespan. Each starts when the one before it ends, or
   when its message arrives. Only a shorter pass on this chain can shorten the timeline. */

#include "compiler/schedule/timeline.h"

typedef struct CriticalPass {
    uint32_t rank, position; /* of an F&B: the half that the path waits for; the F if it waits for the rank */
} CriticalPass;

/* In the order of time; the arena owns the memory. If there are several critical paths, one of them. */
uint32_t critical_path(const Schedule *schedule, const PassTable *table, const Timeline *times, Arena *arena,
                       CriticalPass **path);

#endif
