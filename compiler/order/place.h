#ifndef ORDER_PLACE_H
#define ORDER_PLACE_H

/* Fills in the parameters and finds the rank of each stage. */

#include "compiler/tree/values.h"

/* Checks every `require`, evaluates pipes and chunks, and fills everything in the schedule but its orders. The tree
   must be checked. */
bool place(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
