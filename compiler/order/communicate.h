#ifndef ORDER_COMMUNICATE_H
#define ORDER_COMMUNICATE_H

/* Messages between ranks, derived from the placement and the dependences. */

#include "compiler/schedule/passes.h"

/* Writes the sends and receives into the orders of a schedule whose passes can all run. All orders become projections
   of one sequence of events in which a message is a single event of its two ranks: so ranks that run them in order
   never wait in a circle, even if a send blocks until its receive and a receive until its send, and both ends of a
   channel agree on the order of messages. (prove.h checks that again, on the result.) No receive stands before a pass
   that does not need it: in front of the pass that does there are only other messages. A receive that stands earlier
   holds up the messages behind it wherever ranks handle them in order. And no send stands before its receiver wants it;
   a transport that does not block may post it as soon as it is made (runtime/program/program.h). The table's positions
   move with the passes. Linear, as long as a rank has few neighbours. */
void communicate(Schedule *schedule, PassTable *table, Arena *arena);

#endif
