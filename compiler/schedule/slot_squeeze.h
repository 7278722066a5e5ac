#pragma once

/* In a schedule whose passes take one time slot each, moves passes to earlier slots (as Qi et al., Pipeline Parallelism
   with Controllable Memory, NeurIPS 2024, do with schedules built from a repeating pattern). */

#include "compiler/schedule/timeline.h"

/* most slots of all ranks together: they take 6 GiB */
enum { SQUEEZE_SLOTS_MAX = 1 << 29 };
bool squeeze_has_room(const Schedule *schedule, const Timeline *times);

/* For a legal schedule of F, I and W for which squeeze_has_room is true; `times` are its times under costs_unit. Visits
   the F and I of all ranks in the order of these times. Each moves to the earliest free slot in which its inputs have
   arrived, the previous pass of its kind and chunk has run, and its rank holds at most as many activations as the
   largest peak of a rank before. If there is no such slot, it stays. The W fill the free slots, the oldest first.
   Updates the orders, `table` and `times`. False: the ranks would deadlock. */
bool squeeze_orders(Schedule *schedule, PassTable *table, Timeline *times, Arena *arena);
