#ifndef SCHEDULE_SLOT_SQUEEZE_H
#define SCHEDULE_SLOT_SQUEEZE_H

/* Pulls orders together whose passes take one slot each (Qi et al., Pipeline Parallelism with Controllable Memory,
   NeurIPS 2024, which does it to what is built from a pattern that repeats). */

#include "compiler/schedule/timeline.h"

enum { SQUEEZE_SLOTS_MAX = 1 << 29 }; /* of all ranks: 6 GiB */
bool squeeze_has_room(const Schedule *schedule, const Timeline *times);

/* For a legal schedule of F, I and W that has room, and its times in costs_unit. In the order of these times every F
   and I of every rank moves to the earliest free slot in which what it needs is there, its chunk's one before has run,
   and no rank holds more activations than one did at most before. The slots that are left belong to the weight passes,
   each taking the oldest that waits. Orders, table and times are then those of the squeezed schedule. False: ranks
   would deadlock. */
bool squeeze_orders(Schedule *schedule, PassTable *table, Timeline *times, Arena *arena);

#endif
