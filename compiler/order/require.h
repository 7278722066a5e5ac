#ifndef ORDER_REQUIRE_H
#define ORDER_REQUIRE_H

/* Checks what a schedule requires of its parameters. */

#include "compiler/source/rank_errors.h"
#include "compiler/tree/values.h"

/* Evaluates all items that are the same for every rank, in the order of the file, and checks the requires among them
   and the numbers of ranks and microbatches. A require that fails is reported with its message, the values in it
   and, if it depends on the ranks or microbatches, the nearest numbers that it admits. */
bool require_for_all(const Ast *ast, const Parameters *parameters, int64_t *values, Arena *arena,
                     Diagnostics *diagnostics);
/* Whether no require fails. A require without a value does not count: the two other functions report it. */
bool require_admits(const Ast *ast, const Parameters *parameters, int64_t *values);
/* Evaluates the items that depend on the rank and checks the requires among them. Call it after values_for_all. */
void require_for_rank(const Ast *ast, uint32_t rank, int64_t *values, RankErrors *errors);
/* Evaluates all items and checks all requires, for every rank. Call it when the costs are known: some requires use
   cost(). */
bool require_with_costs(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics);

#endif
