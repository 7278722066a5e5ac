#pragma once

/* Small random changes of one rank's passes. */

#include "compiler/search/pair_order.h"
#include "compiler/search/random.h"

/* Writes a copy of `from` with one random change into `to`. `full`: the change may also make one B of an I and its W,
   or split such a B. False: the change that was drawn is not possible here. pair_line_check may reject the result. */
bool pair_move(const PairLine *from, bool full, uint64_t *random, PairLine *to);
