#pragma once

/* F&Bs whose recipes put weight gradients off (`after`): the weight gradients computed after the F&B become a W of
   their own. Both name the components (PUT_OFF). costs_put_off is the time of that W for every prediction. */

#include "compiler/schedule/passes.h"

/* Replaces the B of each F&B that puts weight gradients off by an I, and adds a W right after the F&B. Action.put_off
   of the I and of the W says which components are put off. Updates the positions in the table. */
void put_off(Schedule *schedule, PassTable *table, Arena *arena);

/* Moves each W that put_off() has added after the sends of what its F&B has computed, if these sends come before the
   next pass of the rank. No other rank needs a W, so none waits longer for it. Call put_off_after_sends() after the
   orders have got their messages. */
void put_off_after_sends(Schedule *schedule, PassTable *table);
