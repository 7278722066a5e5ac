#pragma once

/* `order auto`: evaluates how much memory the file allows each rank, and takes the orders that the search finds. */

#include "compiler/schedule/bound.h"
#include "compiler/search/search.h"
#include "compiler/tree/values.h"

/* Call order_auto() after place() and instead of expand(), with the same tree and parameters. Fills in `limits` with
   the memory that the file allows. False, with diagnostics: a setting has no value or one out of range, or a stage of a
   pipe is on several ranks. An error that several ranks have is reported once. */
bool order_auto(const Ast *ast, const Parameters *parameters, const Costs *costs, const SearchControl *control,
                Arena *arena, Diagnostics *diagnostics, Schedule *schedule, SearchProgress *found,
                MemoryLimits *limits);
