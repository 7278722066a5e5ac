#ifndef SCHEDULE_SLOT_SQUEEZE_H
#define SCHEDULE_SLOT_SQUEEZE_H

/* Moves passes to earlier slots where each pass takes one slot (Qi et al., Pipeline Parallelism with Controllable
   Memory, NeurIPS 2024, which does this to schedules built from a repeating pattern). */

#include "compiler/schedule/timeline.h"

enum { SQUEEZE_SLOTS_MAX = 1 << 29 }; /* of all ranks: 6 GiB */
bool squeeze_has_room(const Schedule *schedule, const Timeline *times);

/* For a legal schedule of F, I and W that fits SQUEEZE_SLOTS_MAX, and its times in costs_unit. Takes the F and I of all
   ranks in the order of these times. Each moves to the earliest free slot in which its inputs have arrived, the
   previous pass of its kind and chunk has run, and its rank never holds more activations than the largest number that
   any rank held before; without such a slot it stays. The weight passes fill the free slots, the oldest first. Orders,
   table and times are then those of the squeezed schedule. False: the ranks would deadlock. */
bool squeeze_orders(Schedule *schedule, PassTable *table, Timeline *times, Arena *arena);

#endif
