#ifndef SEARCH_OPTIMUM_RANK_H
#define SEARCH_OPTIMUM_RANK_H

/* The clauses of one rank: it runs its jobs one after the other, except the halves of a pair, within its memory. */

#include "compiler/search/optimum_model.h"

/* Also fills in model->before[rank]. */
void optimum_rank_add(OptimumModel *model, uint32_t rank, Arena *arena);

#endif
