#ifndef ORDER_ORDER_AUTO_H
#define ORDER_ORDER_AUTO_H

/* The pass for `order auto`, in place of expand: what the file allows a rank to hold, and the orders that the search
   finds for it. */

#include "compiler/search/search.h"
#include "compiler/tree/values.h"

/* After place, with the same tree and parameters. Errors that many ranks share are reported once. */
bool order_auto(const Ast *ast, const Parameters *parameters, const Costs *costs, const SearchControl *control,
                Arena *arena, Diagnostics *diagnostics, Schedule *schedule, SearchProgress *found);

#endif
