#ifndef SEARCH_PAIR_SEARCH_H
#define SEARCH_PAIR_SEARCH_H

/* `order auto` with `overlap`: F&Bs are passes of the search, too. It anneals orders: starting from published ones and
   their variants it takes small random changes of one rank at a time, first also those that make the order somewhat
   longer. Of many microbatches it anneals as many as there are stages, and repeats the middle. */

#include "compiler/search/search.h"

/* As search_order, for the least makespan. */
void search_pairs(Schedule *schedule, const SearchTask *task, const SearchControl *control, Span span, Arena *arena,
                  SearchProgress *found);

#endif
