#pragma once

#include "compiler/schedule/schedule.h"

/* A rank posts the sum of the gradient of `chunk` before the action at `position` of its order. */
typedef struct SumPost {
    uint32_t position;
    uint8_t chunk;
} SumPost;

/* Chooses where the ranks of a synchronous schedule post the sums of their chunks' gradients. Returns [ranks][chunks],
   for each rank in the order in which it posts them. The sum of a stage is posted after the last W or B of all copies
   of the stage, and after the sends that directly follow. All sums, messages and passes form one sequence of events,
   and each rank runs its own events in the order of this sequence. So no rank waits forever, even on a transport on
   which a post returns only when all copies have posted. If the messages of a .csv deadlock, the remaining sums are
   posted at the ends of the orders, and the proof of the program reports the deadlock. The arena owns all memory. */
SumPost **sums_place(const Schedule *schedule, Arena *arena);
