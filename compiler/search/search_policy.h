#ifndef SEARCH_SEARCH_POLICY_H
#define SEARCH_SEARCH_POLICY_H

/* Which policies of search_list.h are tried: some that suit most placements, random ones of their kind, and changes of
   one that is there. */

#include "compiler/search/search_list.h"

/* What they are made of. */
typedef struct PolicyMaker {
    const SearchProblem *problem;
    uint32_t chunks;    /* most of a rank */
    uint32_t stages;    /* of a pipe */
    uint32_t most_held; /* F that a rank's memory holds */
    uint32_t *entry;    /* [pipes]: the first stage's node */
    int64_t *end_path;  /* [pipes]: when the I of a lone microbatch would begin */
    uint64_t random;
} PolicyMaker;

PolicyMaker policy_maker_new(const SearchProblem *problem, Arena *arena);

SearchPolicy policy_new(const SearchProblem *problem, Arena *arena);
void policy_copy(const SearchProblem *problem, SearchPolicy *to, const SearchPolicy *from);

/* Those that are always tried: fills in the one of that number. False: there are no more. */
bool policy_usual(const PolicyMaker *maker, uint32_t number, SearchPolicy *policy);
/* In slots: F, of the latest stage first, as long as there is memory, else I, with their W behind them while F are
   left. */
void policy_forward_first(const PolicyMaker *maker, SearchPolicy *policy);
/* `cost` is that of the best order so far: ranks are allowed to be idle for a share of what they are there. */
void policy_random(PolicyMaker *maker, int64_t cost, SearchPolicy *policy);
/* One to three changes, each to some ranks. */
void policy_change(PolicyMaker *maker, int64_t cost, SearchPolicy *policy);

#endif
