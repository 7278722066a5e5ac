#pragma once

/* The output of `dpc --explain`: tells the author of a schedule what became of every step. */

#include "compiler/compile.h"

/* Prints how often each rank runs each step, or the result of `order auto`; then the recipes. Then prints for each rank
   the number of its messages and, for each step, its passes, their times in `times` and the longest wait for another
   rank. All passes of a rank of a .csv are printed as one step. The compilation must be complete. */
void explain(const Compilation *compilation, const Timeline *times, FILE *stream);
