#ifndef SEARCH_SEARCH_RECIPE_H
#define SEARCH_SEARCH_RECIPE_H

/* Finds the order of both streams of a recipe (runtime/base/recipe.h) under which an F&B takes the least time:
   `overlap F&B auto`. */

#include "runtime/program/recipe_times.h"

enum {
    RECIPE_EXACT = 12,          /* entries up to which the search always runs to its end */
    RECIPE_NODES_MAX = 1 << 18, /* partial orders that it expands where there are more entries */
};

typedef struct RecipeFound {
    Recipe recipe;
    double makespan; /* of its F&B of Costs.layers layers */
    double bound; /* proven: no order takes less. Equal to the makespan if the search ran to its end (1e-9 relative) */
} RecipeFound;

/* The components of which the costs give a time, as bits 1 << ModelPart. 0: none takes any time. */
uint32_t recipe_components_timed(const Costs *costs);

/* The order of these components in DeepSeek's training profile (github.com/deepseek-ai/profile-data, 2025), without a
   share. Communication is in the stream comm. `perceptron` is not in that profile: it is put where each half has it,
   last in the forward and first in the backward. */
Recipe recipe_published(uint32_t components);

/* The shortest recipe with the entries and the share of `start`; every entry stays in its stream. Where no order is
   shorter it is `start` itself. `start` must pass recipe_check. With more than RECIPE_EXACT entries the search ends
   after nodes_max partial orders (usually RECIPE_NODES_MAX). Deterministic: the limit counts work, not seconds. */
RecipeFound recipe_search(const Recipe *start, const Costs *costs, uint64_t nodes_max);

/* The shortest recipe of these components: never longer than the published one. share, whole: as in Recipe. */
RecipeFound recipe_shortest(uint32_t components, uint16_t share, uint16_t whole, const Costs *costs);

#endif
