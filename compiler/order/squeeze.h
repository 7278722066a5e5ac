#ifndef ORDER_SQUEEZE_H
#define ORDER_SQUEEZE_H

/* `squeeze`: pulls the passes of a schedule together (Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024,
   which does it to what is built from a pattern that repeats). */

#include "compiler/schedule/timeline.h"
#include "compiler/tree/ast.h"

/* For a legal schedule and its times at one slot a pass. In the order of these times every F and I of every rank moves to the
   earliest free slot in which what it needs is there, its chunk's one before has run, and no rank holds more activations than
   one did at most before. The slots that are left belong to the weight passes, each taking the oldest that waits. Orders, table
   and times are then those of the squeezed schedule. False, with a diagnostic, where a pass does not take one slot: B, F&B. */
bool squeeze(const Item *item, Schedule *schedule, PassTable *table, Timeline *times, Arena *arena, Diagnostics *diagnostics);

#endif
