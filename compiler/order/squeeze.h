#ifndef ORDER_SQUEEZE_H
#define ORDER_SQUEEZE_H

/* `squeeze` of a schedule file. */

#include "compiler/schedule/timeline.h"
#include "compiler/tree/ast.h"

/* Runs squeeze_orders (slot_squeeze.h) on a legal schedule; `times` are its times under costs_unit, in which each pass
   takes one slot. False, with a diagnostic: there is a pass of several slots (a B or an F&B) or a U, or there are too
   many slots. */
bool squeeze(const Item *item, Schedule *schedule, PassTable *table, Timeline *times, Arena *arena,
             Diagnostics *diagnostics);

#endif
