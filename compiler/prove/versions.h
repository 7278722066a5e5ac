#ifndef PROVE_VERSIONS_H
#define PROVE_VERSIONS_H

/* Asynchronous schedules: those that update weights within the step. */

#include "compiler/schedule/passes.h"

/* Whether a legal schedule has U, into Schedule.asynchronous; and if so, whether every F finds the version of the
   weights that its microbatch is to use (the backward keeps it: that is the plan's), every version is made on all
   copies of the stage, of at least one gradient, and every gradient is taken by one U. Every breach is a diagnostic.
   Fills in the schedule's copies and gradients, and the table's U. */
bool versions_check(Schedule *schedule, PassTable *table, Arena *arena, Diagnostics *diagnostics);

#endif
