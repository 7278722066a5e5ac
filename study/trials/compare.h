#pragma once

/* dpc compare: several schedules in one table, at the same number of ranks or of stages, and the same number of
   microbatches.

   All makespans are those of the same model. The given costs and --slot-bytes are for 1/P of the model, where P is the
   number of ranks of the table; with --stages N, for 1/N. The costs can give another number of stages for themselves
   (trial_costs_stages). If a schedule cuts the model into more or fewer stages, the time and memory of each stage
   change in proportion (costs_resolve). If the command line does not give the number of ranks or of microbatches, dpc
   takes the largest number among the orders (.csv), which admit no other sizes; without orders, the largest default of
   the schedules. */

#include "study/trials/compare_table.h"
#include "study/trials/settings.h"

/* Makes the table, with its rows sorted. A schedule that does not admit the sizes has a row with the reason.
   STATUS_BAD_INPUT: some file is wrong, and the table is complete and has the file's diagnostics; or a file cannot be
   read, and the table has no rows. Any other status except STATUS_OK: the table has no rows. */
Status compare(const TrialSettings *options, Arena *arena, CompareTable *table, Error *error);
