#ifndef ORDER_COST_VALUES_H
#define ORDER_COST_VALUES_H

/* The values of cost(F) and the other costs in a schedule file: integers, in millionths of a forward. */

#include "compiler/tree/values.h"

/* Fills in parameters->costs for a placed schedule. `costs` are those of its stages (costs_resolve). A value is
   10^6 times the mean time over the stages of the first pipe, divided by that of F, rounded to the nearest integer
   (halves away from zero), and at most 10^12. The time of a message is the mean over all pairs of neighbouring stages
   that live on two ranks, in both directions; 0 if there are none. The sums run from stage 0 on, in double precision.
   False if F takes no time: reported at the first cost(). */
bool cost_values(const Ast *ast, const Schedule *schedule, const Costs *costs, Diagnostics *diagnostics,
                 Parameters *parameters);

#endif
