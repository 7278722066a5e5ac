#pragma once

/* Orders with F&Bs made by rules, from which the search with `overlap` starts: DualPipe (DeepSeek-V3 Technical Report,
   2024, section 3.2), DualPipeV (Sea AI Lab, 2025) and variants of their last phase; for loops, Megatron's order
   (schedules/megatron-moe.dps). */

#include "compiler/search/pair_order.h"

/* Whether the stages are those of one pipe in a loop: stage c * ranks + r is chunk c of rank r. */
bool pair_is_loop(const SearchProblem *base);
/* Fills in order `number`. False: there are no more. The order may exceed the ranks' memory. The placement must be a
   loop, or give each rank two chunks with stages h and stages - 1 - h for some h: a V, or two pipes in opposite
   directions. For other placements there are no such orders. */
bool pair_seed(const SearchProblem *base, uint32_t number, PairOrder *order, Arena *scratch);
