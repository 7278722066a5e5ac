#ifndef OUTPUT_EXPLAIN_H
#define OUTPUT_EXPLAIN_H

/* `dpc --explain` tells the author what became of every step of a schedule. */

#include "compiler/compile.h"

/* Prints how often each rank runs each step; then for each rank its messages and the passes that each step became,
   when they run in `times` and what they wait for. The compilation must be complete. */
void explain(const Compilation *compilation, const Timeline *times, FILE *stream);

#endif
