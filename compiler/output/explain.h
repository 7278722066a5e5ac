#ifndef OUTPUT_EXPLAIN_H
#define OUTPUT_EXPLAIN_H

/* `dpc --explain` tells the author what became of every step of a schedule. */

#include "compiler/compile.h"

/* Prints how often each rank runs each step, or the result of `order auto`; then the recipes; then for each rank the
   numbers of its messages and the passes that each step became, when they run in `times`, and their longest wait for
   another rank. Of a .csv all passes of a rank are printed as one step. The compilation must be complete. */
void explain(const Compilation *compilation, const Timeline *times, FILE *stream);

#endif
