#pragma once

/* Makes the policies that the search tries. A policy says how each rank chooses its next pass (search_list.h). Some
   policies come from a fixed list, some are random, and some are random changes of a given policy. */

#include "compiler/search/search_list.h"

/* The data that policies are made from. */
typedef struct PolicyMaker {
    const SearchProblem *problem;
    uint32_t chunks;    /* most chunks of a rank */
    uint32_t stages;    /* most stages of a pipe */
    uint32_t most_held; /* the largest number of F whose activations fit in the memory of a rank at once; at least 1 */
    uint32_t *entry;    /* [pipes]: the node of the first stage */
    /* [pipes]: the time at which a lone microbatch starts its I on the last stage */
    int64_t *end_path;
    uint64_t random;
} PolicyMaker;

PolicyMaker policy_maker_new(const SearchProblem *problem, Arena *arena);

SearchPolicy policy_new(const SearchProblem *problem, Arena *arena);
void policy_copy(const SearchProblem *problem, SearchPolicy *to, const SearchPolicy *from);

/* Makes policy `number` (0, 1, ...) of a fixed list of policies that suit most placements. False: the list is
   shorter. */
bool policy_usual(const PolicyMaker *maker, uint32_t number, SearchPolicy *policy);
/* Makes a greedy policy under which all passes count as equally long (SIGHT_SLOTS). A rank usually runs an F while its
   memory has room for one, else an I. As long as the rank still has F to run, it runs each W right after its I. */
void policy_forward_first(const PolicyMaker *maker, SearchPolicy *policy);
/* Makes a random policy. `cost`: the cost of the best order that a policy has made so far; NEVER: there is none. Under
   the new policy a rank may wait for better passes for a random share of the time that `cost` leaves beside its own
   passes. */
void policy_random(PolicyMaker *maker, int64_t cost, SearchPolicy *policy);
/* Makes one to three random changes to the policy, each on one, several or all ranks. `cost`: the cost of the best
   order that a policy has made so far; NEVER: there is none. */
void policy_change(PolicyMaker *maker, int64_t cost, SearchPolicy *policy);
