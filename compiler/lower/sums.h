#ifndef LOWER_SUMS_H
#define LOWER_SUMS_H

#include "compiler/schedule/schedule.h"

/* Where a rank posts the sum of a chunk's gradient: before the action at `position` of its order. */
typedef struct SumPost {
    uint32_t position;
    uint8_t chunk;
} SumPost;

/* Where the ranks of a synchronous schedule post the sums of their chunks' gradients: [ranks][chunks], each rank's in
   the order in which it posts them. A sum comes after the last W of all copies of the stage and after the sends that
   follow it at once, in one sequence of events of which every rank's messages, passes and sums are a part. If the
   messages of a .csv deadlock, the sums that are left come at the ends of the orders, and the proof of the program
   reports the deadlock. So no rank waits forever even if a post returns only when all copies have posted, as on a
   transport that works in order and has no buffer. All memory is the arena's. */
SumPost **sums_place(const Schedule *schedule, Arena *arena);

#endif
