#pragma once

/* Finds the order of both streams of a recipe (program/recipe.h) that makes an F&B shortest: `overlap F&B
   auto`. */

#include "program/times/recipe_times.h"

enum {
    RECIPE_EXACT = 12, /* a recipe with at most this many entries is always searched to the end */
    /* with more than RECIPE_EXACT entries: the usual limit of the partial orders that a search expands */
    RECIPE_NODES_MAX = 1 << 18,
};

typedef struct RecipeFound {
    Recipe recipe;
    double makespan; /* makespan of an F&B of Costs.layers layers */
    double bound;    /* lower bound of the makespan, proven up to 1e-9 relative; equal to it if the search completed */
} RecipeFound;

/* The components for which the costs give a time (it may be 0), as bits 1 << ModelPart. 0: no time is given, or all
   given times are 0. */
uint32_t recipe_components_timed(const Costs *costs);

/* The order of these components (bits 1 << ModelPart) in DeepSeek's training profile
   (github.com/deepseek-ai/profile-data, 2025). Communication is in the stream comm, and the device chooses how many
   multiprocessors that stream gets. The profile has no `perceptron`; here it comes last in the forward and first in the
   backward, as in an F or B that runs alone. */
Recipe recipe_published(uint32_t components);

/* The shortest recipe that the search finds with the entries of `start` in their streams, and with its share. If none
   is shorter, the result has the order of `start`. `start` must pass recipe_check and put no W off. With more than
   RECIPE_EXACT entries the search ends after it has expanded nodes_max partial orders. The limit counts work, not
   seconds, so the result is the same on every machine. */
RecipeFound recipe_search(const Recipe *start, const Costs *costs, uint64_t nodes_max);

/* The shortest recipe of these components (bits 1 << ModelPart) that recipe_search finds. The search starts from
   recipe_published, so the result is never longer than that recipe. Communication gets `share` of every `whole`
   multiprocessors; both 0: the device chooses. */
RecipeFound recipe_shortest(uint32_t components, uint16_t share, uint16_t whole, const Costs *costs);
