#pragma once

/* Orders made by the rules of published schedules, for any placement. The search starts from those that memory allows
   and that do not deadlock, so its result is never worse than they are. */

#include "compiler/search/search_policy.h"

typedef struct SeedMaker SeedMaker;
/* `schedule` is the schedule that the problem was made from. */
SeedMaker *seed_maker_new(const SearchProblem *problem, const Schedule *schedule, const SearchTask *task, Arena *arena);

/* The result of seed_make, which fills `order` with the order that has index `number` (0, 1, ...). After SEED_MADE the
   order has each pass exactly once and fits in memory, but its ranks may deadlock. */
typedef enum SeedResult {
    SEED_MADE,
    SEED_UNFIT, /* the order needs more memory than a rank may hold, or its rule gives no order for this placement */
    SEED_NONE,  /* no order has this index */
} SeedResult;
SeedResult seed_make(SeedMaker *maker, uint32_t number, SearchOrder *order);
