#ifndef SEARCH_SEARCH_SEED_H
#define SEARCH_SEARCH_SEED_H

/* Orders made by the rules of published schedules, for any placement: what the search starts from and never falls
   behind. */

#include "compiler/search/search_policy.h"

typedef struct SeedMaker SeedMaker;
/* `schedule` is the one that the problem was made of. */
SeedMaker *seed_maker_new(const SearchProblem *problem, const Schedule *schedule, const SearchTask *task, Arena *arena);

/* Fills in the passes of the order of that number: each exactly once; ranks may deadlock. */
typedef enum SeedResult {
    SEED_MADE,
    SEED_UNFIT, /* it takes more memory than there is */
    SEED_NONE,  /* there are no more */
} SeedResult;
SeedResult seed_make(SeedMaker *maker, uint32_t number, SearchOrder *order);

#endif
