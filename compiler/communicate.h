#ifndef COMPILER_COMMUNICATE_H
#define COMPILER_COMMUNICATE_H

/* Messages between ranks, derived from the placement and the dependences. */

#include "compiler/timeline.h"

/* Writes the sends and receives into the orders. All orders become projections of one sequence of events in which a message
   is a single event, right behind the pass that makes it: so ranks that run them in order never wait in a circle, even if a
   send blocks until its receive and a receive until its send, and both ends of a channel agree on the order of messages.
   (prove.h checks that again, on the result.) The table's positions move with the passes. `timeline` is a complete one in unit costs: the sequence is by its times. */
void communicate(Schedule *schedule, PassTable *table, const Timeline *timeline, Arena *arena);

#endif
