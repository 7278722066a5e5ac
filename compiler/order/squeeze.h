#ifndef ORDER_SQUEEZE_H
#define ORDER_SQUEEZE_H

/* `squeeze` of a schedule file. */

#include "compiler/schedule/timeline.h"
#include "compiler/tree/ast.h"

/* For a legal schedule and its times in costs_unit: squeeze_orders (slot_squeeze.h). False, with a diagnostic, if a
   pass does not take one slot (B, F&B) or there are too many slots. */
bool squeeze(const Item *item, Schedule *schedule, PassTable *table, Timeline *times, Arena *arena,
             Diagnostics *diagnostics);

#endif
