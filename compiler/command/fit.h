#ifndef COMMAND_FIT_H
#define COMMAND_FIT_H

/* dpc fit: makespan, bubble and peak of a schedule as formulas in its ranks P, its microbatches M and the costs.

   The makespan of an order is the largest of sums of times along paths, so near most costs it is linear in them, with
   whole numbers as coefficients: differences of exact timelines. Over many sizes a coefficient is fitted as a
   polynomial in P and M, in exact fractions; such a linear form is one piece, and a formula is the maximum of its
   pieces. Sizes and costs for which that maximum is wrong give the next piece, until none are found. What holds only
   for some sizes or costs says for which. The result is checked, not proven. */

#include "compiler/command/options.h"

/* Prints the formulas. STATUS_BAD_INPUT with `diagnostics`: the file is wrong. */
Status fit(const Options *options, Arena *arena, Diagnostics **diagnostics, FILE *stream, Error *error);

#endif
