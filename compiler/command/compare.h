#ifndef COMMAND_COMPARE_H
#define COMMAND_COMPARE_H

/* dpc compare: several schedules in one table, at the same number of ranks or of stages, and the same number of
   microbatches.

   All makespans are those of the same model. The given times and bytes are for 1/P of the model, where P is the number
   of ranks of the table; with --stages N, for 1/N. If a schedule cuts the model into more stages than that, each stage
   takes less time and memory in proportion (costs_resolve). If the command line does not give the number of ranks or of
   microbatches, dpc takes the largest number among the orders (.csv), which admit no other sizes; without orders, the
   largest default of the schedules. */

#include "compiler/command/compare_table.h"
#include "compiler/command/options.h"

/* Makes the table, with its rows sorted. A schedule that does not admit the sizes has a row with the reason.
   STATUS_BAD_INPUT: the table is complete, but some file is wrong, and the table has its diagnostics. Any status other
   than this and STATUS_OK: the table has no rows. */
Status compare(const Options *options, Arena *arena, CompareTable *table, Error *error);

#endif
