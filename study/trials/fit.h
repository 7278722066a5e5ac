#pragma once

/* dpc fit: makespan, bubble and peak of a schedule as formulas in its ranks P, its microbatches M and the costs.

   The makespan of an order is the length of its critical path, so near most costs it is a linear form in the costs with
   whole numbers as coefficients. Differences of exact timelines give these coefficients. Each coefficient is fitted
   over many sizes as a polynomial in P and M, in exact fractions. Such a linear form is one piece, and a formula is the
   maximum of its pieces. A check at random costs looks for costs under which that maximum is wrong; these give the next
   piece, until the check finds none. A formula that holds only for some sizes or costs says for which. The result is
   checked, not proven.

   A searched order (`order auto`) is fitted only where it is as short as the search's lower bound: such an order does
   not depend on how long the search runs. */

#include "study/trials/settings.h"

/* Prints the formulas. STATUS_BAD_INPUT: the file is wrong or cannot be read; `diagnostics` or `error` say why.
   STATUS_BAD_USAGE: the file is an order (.csv), or has no parameter of a given name. */
Status fit(const TrialSettings *options, Arena *arena, Diagnostics **diagnostics, FILE *stream, Error *error);
