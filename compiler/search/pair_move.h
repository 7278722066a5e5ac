#ifndef SEARCH_PAIR_MOVE_H
#define SEARCH_PAIR_MOVE_H

/* Small random changes of one rank's passes. */

#include "compiler/search/pair_order.h"

/* A random number 0..limit-1, the same on every machine. Call it only once per expression, as C does not fix the order
   of two calls. */
static inline uint32_t random_of(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

/* Writes a changed copy of `from` into `to`. False: the change that was drawn does not apply. pair_line_check may
   reject the result. */
bool pair_move(const PairLine *from, uint64_t *random, PairLine *to);

#endif
