#ifndef ORDER_COMMUNICATE_H
#define ORDER_COMMUNICATE_H

/* Messages between ranks, derived from the placement and the dependences. */

#include "compiler/schedule/passes.h"

/* Writes the sends and receives into the orders of a schedule whose passes can all run. All orders become projections
   of one sequence of events in which a message is a single event of its two ranks. So ranks that run them in order
   never deadlock, even if a send blocks until its receive and a receive until its send, and both ends of a channel
   agree on the order of messages. (prove.h checks both again, on the result.) Between a receive and the pass that needs
   it there are only other messages: an earlier receive would delay the messages after it where ranks handle them in
   order. No send comes before its receiver wants it; a transport that does not block may post it as soon as it is made
   (runtime/program/program.h). The table's positions move with the passes. Linear, as long as a rank has few
   neighbours. */
void communicate(Schedule *schedule, PassTable *table, Arena *arena);

#endif
