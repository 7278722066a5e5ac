#pragma once

/* Runs `squeeze` of a schedule file. */

#include "compiler/schedule/timeline.h"
#include "compiler/tree/values.h"

/* Runs squeeze_orders (slot_squeeze.h) on a legal schedule, unless the condition of `squeeze` is 0. `times`: the times
   under costs_unit, in which each pass takes one slot. False, with a diagnostic: the condition has no value, a pass
   takes several slots (B, F&B or F&F), there is a U, or there are too many slots. */
bool squeeze(const Ast *ast, const Parameters *parameters, Schedule *schedule, PassTable *table, Timeline *times,
             Arena *arena, Diagnostics *diagnostics);
