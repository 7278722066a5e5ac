#ifndef ORDER_PUT_OFF_H
#define ORDER_PUT_OFF_H

/* F&Bs whose recipes put weight gradients off (`after`): the weight gradients computed after the F&B become a W of
   their own. */

#include "compiler/schedule/passes.h"

/* Replaces the B of each such F&B by an I, and adds a W right after the F&B. Action.put_off of both says which
   components are put off. Updates the positions in the table. */
void put_off(Schedule *schedule, PassTable *table, Arena *arena);

/* Moves each of these Ws after the sends of what its F&B has computed, if these sends come before the next pass of
   the rank. No rank waits longer because of that: no other rank needs a W. Call it after the orders have got their
   messages. */
void put_off_after_sends(Schedule *schedule, PassTable *table);

#endif
