#ifndef COMMAND_COMPARE_H
#define COMMAND_COMPARE_H

/* dpc compare: several schedules in one table, at the same number of ranks or of stages, and the same number of
   microbatches.

   A time for all stages is that of 1/P of the model, where P is the number of ranks of the table, or of 1/N with
   --stages N; so are sizes in bytes. A schedule that cuts the model into more stages has smaller stages, whose costs
   are smaller in proportion (costs_resolve). So all makespans are those of one model. A size that the command line
   leaves open is the largest default of the files. */

#include "compiler/command/compare_table.h"
#include "compiler/command/options.h"

/* Makes the table, sorted. A schedule that does not admit the sizes has a row with the reason. A wrong file has its
   diagnostics in the table and makes the result STATUS_BAD_INPUT. Any other status: the
   table has no rows. */
Status compare(const Options *options, Arena *arena, CompareTable *table, Error *error);

#endif
