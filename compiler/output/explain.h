#ifndef OUTPUT_EXPLAIN_H
#define OUTPUT_EXPLAIN_H

/* What became of every step of a schedule, for its author: `dpc --explain`. */

#include "compiler/compile.h"

/* How often each rank runs each step; then, rank by rank, its messages and the passes that each step became, when they
   run in `times` and what they wait for. The compilation came to its end. */
void explain(const Compilation *compilation, const Timeline *times, FILE *stream);

#endif
