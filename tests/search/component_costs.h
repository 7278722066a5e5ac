#pragma once

/* Random times of the components of a layer, for recipe_search. */

#include "program/times/costs.h"
#include "tests/program/random.h"

enum {
    FOUR_COMPONENTS = 1 << RECIPE_ATTENTION | 1 << RECIPE_DISPATCH | 1 << RECIPE_MLP | 1 << RECIPE_COMBINE,
    ALL_COMPONENTS = (1 << RECIPE_COMPONENTS) - 1,
};

/* Times from 1/8 to 12.5, those of communication up to 4 times as long, so that either stream may be the longer one; 1
   to layers_max layers. components: bits 1 << ModelPart. */
static inline Costs random_component_costs(uint64_t *seed, uint32_t components, uint32_t layers_max)
{
    Costs costs = costs_unit;
    const uint32_t stretch = 1 + random_below(seed, 4);
    costs.layers = 1 + random_below(seed, layers_max);
    for (int c = 0; c < RECIPE_COMPONENTS; c++)
        for (int pass = 0; (components & 1u << c) && pass < RECIPE_PASSES; pass++)
            if (pass != RECIPE_W || !recipe_communicates[c])
                costs.parts[c][pass] = (1 + random_below(seed, 100)) * (recipe_communicates[c] ? stretch : 1) / 8.0;
    return costs;
}
