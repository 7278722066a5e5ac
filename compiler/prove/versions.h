#ifndef PROVE_VERSIONS_H
#define PROVE_VERSIONS_H

/* Asynchronous schedules: those that update weights within the step. */

#include "compiler/schedule/schedule.h"

/* Whether a legal schedule has U, into Schedule.asynchronous; and if so, whether every F finds the version of the weights that its
   microbatch is to use (the backward keeps it: that is the plan's), every U has gradients to take and every gradient is taken by one.
   Every breach is a diagnostic. */
bool versions_check(Schedule *schedule, Arena *arena, Diagnostics *diagnostics);

#endif
