#pragma once

/* Adds the messages between ranks to the orders; they follow from the placement and the dependences of passes. */

#include "compiler/schedule/passes.h"

/* Writes sends and receives into the orders of a schedule whose passes can all run. All passes and messages form one
   sequence of events, in which a message is a single event of its two ranks; the order of a rank is the part of this
   sequence that concerns the rank. So ranks that run their orders never deadlock, even if a send blocks until its
   receive and a receive until its send, and both ends of a channel have the same order of messages. (prove.h checks
   both on the result.) Between a receive and the pass that needs it there are only other messages: an earlier
   receive would delay the messages after it if ranks handle messages in order. A send comes no earlier than the
   receiver requests it; a transport that does not block may post it as soon as its value is computed
   (program/program.h). Updates the positions in the table. Takes linear time if each rank has few
   neighbours. */
void communicate(Schedule *schedule, PassTable *table, Arena *arena);
