/* Time of the search of `overlap F&B auto` over 100 random sets of component times: mean and maximum. */

#include "compiler/search/search_recipe.h"
#include "base/clock.h"
#include "tests/search/component_costs.h"

#include <stdio.h>

enum { SETS = 100 };

static void measure(const char *name, uint32_t components, uint32_t layers)
{
    uint64_t seed = 1;
    double all = 0, longest = 0;
    uint32_t proven = 0;
    for (int i = 0; i < SETS; i++) {
        Costs costs = random_component_costs(&seed, components, 1);
        costs.layers = layers;
        const int64_t start = clock_nanoseconds();
        const RecipeFound found = recipe_shortest(components, 0, 0, &costs);
        const double seconds = 1e-9 * (double)(clock_nanoseconds() - start);
        proven += found.bound >= found.makespan;
        all += seconds;
        longest = seconds > longest ? seconds : longest;
    }
    printf("overlap_auto_%s_%ulayers %.3f ms (longest %.3f, %u of %d proven)\n", name, layers, 1e3 * all / SETS,
           1e3 * longest, proven, SETS);
}

int main(void)
{
    const uint32_t layers[] = {1, 4, 16, 61};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        measure("10entries", FOUR_COMPONENTS, layers[i]);
        measure("13entries", ALL_COMPONENTS, layers[i]);
    }
    return 0;
}
