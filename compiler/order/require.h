#pragma once

/* Checks what a schedule file requires of its parameters. */

#include "compiler/source/rank_errors.h"
#include "compiler/tree/values.h"

/* Evaluates all items that are the same for every rank, in the order of the file, and checks the requires among them
   and the numbers of ranks and microbatches. Ends at an item without a value or at a number beyond its limit. A require
   that fails is reported with its message and the values in it. The report also suggests the nearest values with which
   all requires hold: of a parameter given by -D, else of the number of microbatches, else of the number of ranks, as
   far as the require depends on these. False: it reported an error. */
bool require_for_all(const Ast *ast, const Parameters *parameters, int64_t *values, Arena *arena,
                     Diagnostics *diagnostics);
/* False: a require fails. Stops with true at the first item without a value, or at a number of ranks or microbatches
   beyond its limit; the other functions report such an item. */
bool require_admits(const Ast *ast, const Parameters *parameters, int64_t *values);
/* Evaluates, for one rank, the items that depend on the rank, except chunks, and checks the requires among them. Ends
   at an item without a value. Adds the errors to `errors`. `values`: as require_for_all has left them. */
void require_for_rank(const Ast *ast, uint32_t rank, int64_t *values, RankErrors *errors);
/* Evaluates all items except chunks, and checks all requires, for every rank. Called when the costs are known, because
   some requires use cost(). False, with diagnostics: a require fails, or an item has no value. */
bool require_with_costs(const Ast *ast, const Parameters *parameters, Arena *arena, Diagnostics *diagnostics);
