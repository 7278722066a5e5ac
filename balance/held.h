#ifndef BALANCE_HELD_H
#define BALANCE_HELD_H

/* Placements near the current one. */

#include "balance/balance.h"

/* Improves request->from with at most request->moves moves, and writes the result to `placement`. Experts that stay on
   a GPU stay in their slots. bound: a lower bound of the largest load of a GPU; the search stops when it is reached.
   STATUS_BAD_INPUT: request->distinct needs more moves. */
Status held_improve(const BalanceShape *shape, const BalanceRequest *request, const double *loads, double bound,
                    uint32_t *placement, Arena *arena, Error *error);

/* Renumbers the nodes of `placement`, and the GPUs of each node, so that experts are, if possible, on the GPU that
   holds them in `from` (a greedy matching). Only GPUs with the same number of slots are exchanged. */
void held_match(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

/* Reorders the slots within each GPU: experts that the GPU holds in `from` get the slots that they have there. */
void held_align(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

#endif
