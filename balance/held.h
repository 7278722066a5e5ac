#pragma once

/* Placements near the current one. */

#include "balance/balance.h"

/* Improves request->from with at most request->moves moves, and writes the result to `placement`. Experts that stay on
   a GPU stay in their slots. bound: a lower bound of the largest load of a GPU; the search stops when the largest load
   reaches it. STATUS_BAD_INPUT: request->distinct cannot be fulfilled, or not with so many moves. */
Status held_improve(const BalanceShape *shape, const BalanceRequest *request, const double *loads, double bound,
                    uint32_t *placement, Arena *arena, Error *error);

/* Renumbers the GPUs of each node of `placement` and, if all GPUs have the same number of slots, the nodes, so that
   more experts are on the GPU that holds them in `from` (a greedy matching). Only GPUs with the same number of slots
   are exchanged. */
void held_match(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);

/* Reorders the slots within each GPU: experts that the GPU holds in `from` get the slots that they have there. */
void held_align(const BalanceShape *shape, const uint32_t *from, uint32_t *placement, Arena *arena);
