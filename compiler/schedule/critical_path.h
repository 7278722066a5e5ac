#pragma once

/* The critical path: the chain of passes that determines the makespan. Each pass of the chain starts when the previous
   pass of the chain ends, or when the message from that pass arrives. While the orders stay the same, the makespan
   shrinks only if a pass or a message of this chain becomes shorter. */

#include "compiler/schedule/timeline.h"

typedef struct CriticalPass {
    /* of an F&B or F&F: the half whose result the next pass of the path needs, or the first half if the next pass only
       waits for the rank to be free */
    uint32_t rank, position;
} CriticalPass;

/* Sets *path to the passes of a critical path in the order of time, and returns their number. The arena owns them. If
   there are several critical paths, this is one of them. */
uint32_t critical_path(const Schedule *schedule, const PassTable *table, const Timeline *times, Arena *arena,
                       CriticalPass **path);
