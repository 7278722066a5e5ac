#ifndef ORDER_PLACE_H
#define ORDER_PLACE_H

/* Fills in the parameters: where every stage lives. */

#include "compiler/tree/values.h"

/* Checks every `require`, evaluates pipes and chunks, and fills all of the schedule but its orders. The tree is
   checked. */
bool place(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
