#ifndef SEARCH_OPTIMUM_RANK_H
#define SEARCH_OPTIMUM_RANK_H

/* The clauses of one rank: except for the halves of a pair, its jobs run one after the other, and it keeps to its
   memory limits. */

#include "compiler/search/optimum_model.h"

/* Also fills in model->before[rank]. */
void optimum_rank_add(OptimumModel *model, uint32_t rank, Arena *arena);

#endif
