#ifndef BALANCE_HELD_H
#define BALANCE_HELD_H

/* Placements near the one in force. */

#include "balance/balance.h"

/* A better placement than request->from by at most request->moves moves; slots that keep their expert are where they
   were. bound: the largest load that no placement beats. STATUS_BAD_INPUT: --distinct needs more moves. */
Status held_improve(const BalanceShape *shape, const BalanceRequest *request, const double *loads, double bound,
                    uint32_t *placement, Arena *arena, Error *error);

/* Puts each GPU's part of `placement` on the GPU, of the same node or with its whole node on another, where most of
   it is already, as far as GPUs have the same number of slots. */
void held_match(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

/* Within each GPU, what it holds already goes to the slots where it is. */
void held_align(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

#endif
