#ifndef SEARCH_SEARCH_POLICY_H
#define SEARCH_SEARCH_POLICY_H

/* Makes the policies (search_list.h) that the search tries: some that suit most placements, random ones of the same
   kind, and changes of a given one. */

#include "compiler/search/search_list.h"

/* The data that policies are made from. */
typedef struct PolicyMaker {
    const SearchProblem *problem;
    uint32_t chunks;    /* most chunks of a rank */
    uint32_t stages;    /* stages of a pipe */
    uint32_t most_held; /* most F that the memory of any rank holds */
    uint32_t *entry;    /* [pipes]: the node of the first stage */
    /* [pipes]: the time at which a lone microbatch starts its I on the last stage */
    int64_t *end_path;
    uint64_t random;
} PolicyMaker;

PolicyMaker policy_maker_new(const SearchProblem *problem, Arena *arena);

SearchPolicy policy_new(const SearchProblem *problem, Arena *arena);
void policy_copy(const SearchProblem *problem, SearchPolicy *to, const SearchPolicy *from);

/* Fills in policy `number` of those that are always tried. False: there are no more. */
bool policy_usual(const PolicyMaker *maker, uint32_t number, SearchPolicy *policy);
/* Makes a greedy policy under which all passes count as equally long (SIGHT_SLOTS): a rank runs the F of its latest
   stage while there is memory, else an I. While F are left, each I is followed by its W. */
void policy_forward_first(const PolicyMaker *maker, SearchPolicy *policy);
/* Makes a random policy. `cost`: the cost of the best order so far. A rank may be idle for a random share of its idle
   time in that order. */
void policy_random(PolicyMaker *maker, int64_t cost, SearchPolicy *policy);
/* Makes one to three random changes to the policy, each on some ranks. `cost`: as for policy_random. */
void policy_change(PolicyMaker *maker, int64_t cost, SearchPolicy *policy);

#endif
