#ifndef ORDER_PLACE_H
#define ORDER_PLACE_H

/* Evaluates the parameters of a schedule file and finds the rank of each stage. */

#include "compiler/tree/values.h"

/* Checks each `require` that does not depend on costs, evaluates pipes and chunks, and fills in everything in the
   schedule but its orders and the entries of an automatic recipe. The tree must have passed check(). */
bool place(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
