#ifndef BALANCE_HELD_H
#define BALANCE_HELD_H

/* Placements near the current one. */

#include "balance/balance.h"

/* Finds a better placement than request->from with at most request->moves moves; experts that stay on a GPU stay in
   their slots. bound: the largest load that no placement beats. STATUS_BAD_INPUT: --distinct needs more moves. */
Status held_improve(const BalanceShape *shape, const BalanceRequest *request, const double *loads, double bound,
                    uint32_t *placement, Arena *arena, Error *error);

/* Renumbers the GPUs of `placement`, within a node or with a whole node, so that most experts are where they are in
   `from`, as far as GPUs have the same number of slots. */
void held_match(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

/* Within each GPU, puts the experts that it already holds into their current slots. */
void held_align(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

#endif
