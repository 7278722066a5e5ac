#ifndef SEARCH_SEARCH_RECIPE_H
#define SEARCH_SEARCH_RECIPE_H

/* Finds the order of both streams of a recipe (runtime/base/recipe.h) that makes an F&B shortest: `overlap F&B
   auto`. */

#include "runtime/program/recipe_times.h"

enum {
    RECIPE_EXACT = 12,          /* with at most this many entries the search always completes */
    RECIPE_NODES_MAX = 1 << 18, /* with more entries, the search expands at most this many partial orders */
};

typedef struct RecipeFound {
    Recipe recipe;
    double makespan; /* makespan of an F&B of Costs.layers layers */
    double bound;    /* proven lower bound of the makespan; equal to it, up to 1e-9 relative, if the search completed */
} RecipeFound;

/* The components for which the costs have a time, as bits 1 << ModelPart. 0: no component has a time above 0. */
uint32_t recipe_components_timed(const Costs *costs);

/* The order of these components in DeepSeek's training profile (github.com/deepseek-ai/profile-data, 2025).
   Communication is in the stream comm, and the device chooses its share. The profile has no `perceptron`; here it comes
   last in the forward and first in the backward, as when these run alone. */
Recipe recipe_published(uint32_t components);

/* The shortest recipe with the entries and the share of `start`. Every entry stays in its stream. Returns the order of
   `start` if none is shorter. `start` must pass recipe_check. With more than RECIPE_EXACT entries the search ends after
   nodes_max partial orders (usually RECIPE_NODES_MAX). It is deterministic: the limit counts work, not seconds. */
RecipeFound recipe_search(const Recipe *start, const Costs *costs, uint64_t nodes_max);

/* The shortest recipe of these components that recipe_search finds. It starts from recipe_published, so the result is
   never longer than that. share, whole: as in Recipe. */
RecipeFound recipe_shortest(uint32_t components, uint16_t share, uint16_t whole, const Costs *costs);

#endif
