#ifndef ORDER_SQUEEZE_H
#define ORDER_SQUEEZE_H

/* `squeeze` of a schedule file. */

#include "compiler/schedule/timeline.h"
#include "compiler/tree/ast.h"

/* Runs squeeze_orders (slot_squeeze.h) on a legal schedule; `times` are its times under costs_unit, in which each pass
   takes one slot. False, with a diagnostic: some pass takes two slots (a B or an F&B), or there are too many slots. */
bool squeeze(const Item *item, Schedule *schedule, PassTable *table, Timeline *times, Arena *arena,
             Diagnostics *diagnostics);

#endif
