#ifndef PROVE_PROVE_H
#define PROVE_PROVE_H

/* Nothing runs unproven. What fails is a diagnostic naming ranks, passes and source lines; for ranks that wait for each
   other it is the shortest circle of waits. */

#include "compiler/schedule/timeline.h"

/* Reports the circle of passes that made timeline_run fail. */
void prove_report_circle(const Schedule *schedule, const PassTable *table, const Timeline *timeline, Arena *arena,
                         Diagnostics *diagnostics);

/* The communication in the orders, derived or written by hand: every value that another rank needs is sent once, after
   the pass that makes it, and received once, before the pass that needs it, and nothing else is; both ends of each
   directed pair of ranks agree on the order of its messages; and if every rank runs its order strictly one after the
   other, each send waiting for its receive and each receive for its send, all ranks come to their end. */
bool prove_messages(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics);

#endif
