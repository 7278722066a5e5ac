#ifndef SEARCH_PAIR_MOVE_H
#define SEARCH_PAIR_MOVE_H

/* Small random changes of one rank's passes. */

#include "compiler/search/pair_order.h"
#include "compiler/search/random.h"

/* Writes a changed copy of `from` into `to`. False: the change that was drawn does not apply. pair_line_check may
   reject the result. */
bool pair_move(const PairLine *from, uint64_t *random, PairLine *to);

#endif
