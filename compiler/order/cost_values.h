#pragma once

/* The values of cost(F), cost(B) and so on in a schedule file: integers, in millionths of the time of an F. */

#include "compiler/tree/values.h"

/* Fills in parameters->costs for a placed schedule. `costs`: those of its stages (costs_resolve). A value is 10^6 *
   (mean time over the stages of the first pipe) / (mean time of F over them), rounded to the nearest integer (halves
   away from zero), and at most 10^12. The time of a message is the mean over all pairs of neighbouring stages that
   live on two ranks, in both directions; 0 if there are none. The sums run from stage 0 on, in double precision.
   False: F takes no time; a diagnostic at the first cost() says so. */
bool cost_values(const Ast *ast, const Schedule *schedule, const Costs *costs, Diagnostics *diagnostics,
                 Parameters *parameters);
