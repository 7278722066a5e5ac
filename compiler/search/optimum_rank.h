#pragma once

/* The clauses of one rank: its jobs run one after the other, except the halves of an F&B or F&I, and it keeps to its
   memory limits. */

#include "compiler/search/optimum_model.h"

/* Adds the clauses of a rank and fills in model->before[rank]. */
void optimum_rank_add(OptimumModel *model, uint32_t rank, Arena *arena);
