#ifndef SCHEDULE_CRITICAL_PATH_H
#define SCHEDULE_CRITICAL_PATH_H

/* The chain of passes that makes the timeline as long as it is: each starts when the one before it ends, or when its
   message arrives. A shorter pass anywhere on it, and nowhere else, can shorten the whole. */

#include "compiler/schedule/timeline.h"

typedef struct CriticalPass {
    uint32_t rank, position; /* of an F&B: the half that was waited for, the F where it is the rank that was */
} CriticalPass;

/* In the order of time; the memory is the arena's. One of them, where there are several. */
uint32_t critical_path(const Schedule *schedule, const PassTable *table, const Timeline *times, Arena *arena,
                       CriticalPass **path);

#endif
