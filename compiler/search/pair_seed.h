#ifndef SEARCH_PAIR_SEED_H
#define SEARCH_PAIR_SEED_H

/* Orders with F&Bs by rule, from which the search with `overlap` starts: DualPipe (DeepSeek-V3 Technical Report, 2024,
   section 3.2), DualPipeV (Sea AI Lab, 2025), and variants of their end. */

#include "compiler/search/pair_order.h"

/* Fills in the order of that number. False: there are no more. The ranks may not have the memory for it. They fit every
   placement in which each rank has two chunks, stage h from the start and stage h from the end of a pipe: a V, or two
   pipes in opposite directions. There are none for others. */
bool pair_seed(const SearchProblem *base, uint32_t number, PairOrder *order, Arena *scratch);

#endif
