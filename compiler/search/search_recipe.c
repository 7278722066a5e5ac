/* Branch and bound over the orders in which the entries of a layer are issued. An entry is one pass (F, B or W) of a
   component. A partial order has the first entries of an order. Its lower bound comes from a simulation of these
   entries in all layers: in each layer, every entry that the partial order lacks delays its stream by its time and, if
   it is an F or B, also the chain of all F or of all B. The bound of a complete order is its makespan. */

#include "compiler/search/search_recipe.h"

#include <math.h>
#include <string.h>

static const double least_gain = 1e-9; /* relative; a smaller gain is a rounding error */

typedef struct Search {
    RecipeStep steps[RECIPE_ENTRIES]; /* [count] */
    uint32_t count, layers;
    uint32_t path[RECIPE_ENTRIES]; /* indices of steps, in the order of issue */
    uint32_t placed;               /* bits 1 << index */
    uint32_t best_path[RECIPE_ENTRIES];
    double best;
    /* least bound of the partial orders that were not expanded because nodes_left was 0; INFINITY: there are none */
    double open;
    uint64_t nodes_left;
} Search;

typedef struct Candidate {
    uint32_t step;
    double bound;
} Candidate;

/* Lower bound of all orders that begin with the first `depth` entries of the path. */
static double bound_of(const Search *search, uint32_t depth)
{
    double stream_rest[RECIPE_STREAMS] = {0}, chain_rest[RECIPE_PASSES] = {0}, bound = 0;
    RecipeClock clock = {.chain = {0}};
    for (uint32_t i = 0; i < search->count; i++)
        if (!(search->placed & 1u << i)) {
            stream_rest[search->steps[i].stream] += search->steps[i].time;
            chain_rest[search->steps[i].entry.pass] += search->steps[i].time;
        }
    for (uint32_t layer = 0; layer < search->layers; layer++) {
        for (uint32_t i = 0; i < depth; i++)
            recipe_advance(&clock, &search->steps[search->path[i]]);
        for (int s = 0; s < RECIPE_STREAMS; s++)
            clock.free[s] += stream_rest[s];
        for (int pass = RECIPE_F; pass <= RECIPE_B; pass++)
            clock.chain[pass] += chain_rest[pass];
    }
    for (int s = 0; s < RECIPE_STREAMS; s++)
        bound = fmax(bound, clock.free[s]);
    for (int pass = RECIPE_F; pass <= RECIPE_B; pass++)
        bound = fmax(bound, clock.chain[pass]);
    return bound;
}

static bool is_placed(const Search *search, RecipeEntry entry)
{
    for (uint32_t i = 0; i < search->count; i++)
        if (recipe_entry_same(search->steps[i].entry, entry))
            return search->placed & 1u << i;
    return false;
}

/* Whether the step can be issued next. Many orders of issue give the same two streams; the search visits only the one
   in which communication is issued as early as possible (recipe_order). So a communication entry is issued directly
   after a compute entry only if it needs the result of that entry. */
static bool fits(const Search *search, uint32_t depth, uint32_t index)
{
    const RecipeStep *step = &search->steps[index], *last = depth ? &search->steps[search->path[depth - 1]] : NULL;
    if (search->placed & 1u << index || (step->needs && !is_placed(search, step->needed)))
        return false;
    const bool is_early = step->stream == RECIPE_COMPUTE || !last || last->stream == RECIPE_COMM;
    return is_early || (step->needs && recipe_entry_same(step->needed, last->entry));
}

/* Finds the steps that can come next after the first `depth` entries of the path, the one with the least lower bound
   first. Returns their number. */
static uint32_t candidates_at(Search *search, uint32_t depth, Candidate *candidates)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < search->count; i++) {
        if (!fits(search, depth, i))
            continue;
        search->path[depth] = i;
        search->placed |= 1u << i;
        const Candidate candidate = {i, bound_of(search, depth + 1)};
        search->placed &= ~(1u << i);
        uint32_t k = count++;
        for (; k > 0 && candidates[k - 1].bound > candidate.bound; k--)
            candidates[k] = candidates[k - 1];
        candidates[k] = candidate;
    }
    return count;
}

static bool is_shorter(const Search *search, double makespan) { return makespan < search->best * (1 - least_gain); }

/* Looks for an order shorter than search->best that begins with the first `depth` entries of the path, and makes it the
   best one. `bound`: the lower bound of all orders that begin so. */
static void explore(Search *search, uint32_t depth, double bound)
{
    Candidate candidates[RECIPE_ENTRIES];
    if (depth == search->count) {
        search->best = bound;
        memcpy(search->best_path, search->path, sizeof search->path);
        return;
    }
    if (!search->nodes_left) {
        search->open = fmin(search->open, bound);
        return;
    }
    search->nodes_left--;
    const uint32_t count = candidates_at(search, depth, candidates);
    for (uint32_t i = 0; i < count && is_shorter(search, candidates[i].bound); i++) {
        search->path[depth] = candidates[i].step;
        search->placed |= 1u << candidates[i].step;
        explore(search, depth + 1, candidates[i].bound);
        search->placed &= ~(1u << candidates[i].step);
    }
}

static void append(Recipe *recipe, RecipeStream stream, RecipeEntry entry)
{
    recipe->entries[stream][recipe->counts[stream]++] = entry;
}

/* Begins a search, with the order of `start` as the best order so far. */
static Search search_from(const Recipe *start, const Costs *costs)
{
    RecipeEntry order[RECIPE_ENTRIES];
    Search search = {.count = recipe_order(start, order), .layers = recipe_layers(costs), .open = INFINITY};
    for (uint32_t i = 0; i < search.count; i++) {
        search.steps[i] = recipe_step(start, costs, order[i]);
        search.path[i] = search.best_path[i] = i;
        search.placed |= 1u << i;
    }
    search.best = bound_of(&search, search.count);
    search.placed = 0;
    return search;
}

RecipeFound recipe_search(const Recipe *start, const Costs *costs, uint64_t nodes_max)
{
    Search search = search_from(start, costs);
    search.nodes_left = search.count <= RECIPE_EXACT ? UINT64_MAX : nodes_max;
    explore(&search, 0, bound_of(&search, 0));
    RecipeFound found = {.recipe = {.share = start->share, .whole = start->whole}, .makespan = search.best};
    found.bound = fmin(search.best, search.open);
    for (uint32_t i = 0; i < search.count; i++) {
        const RecipeStep *step = &search.steps[search.best_path[i]];
        append(&found.recipe, step->stream, step->entry);
    }
    return found;
}

uint32_t recipe_components_timed(const Costs *costs)
{
    uint32_t components = 0;
    double sum = 0;
    for (int c = 0; c < RECIPE_COMPONENTS; c++)
        for (int pass = 0; pass < RECIPE_PASSES; pass++)
            if (costs->parts[c][pass] >= 0) {
                components |= 1u << c;
                sum += costs->parts[c][pass];
            }
    return sum > 0 ? components : 0;
}

Recipe recipe_published(uint32_t components)
{
    static const RecipeEntry entries[] = {
        {RECIPE_PERCEPTRON, RECIPE_B}, {RECIPE_PERCEPTRON, RECIPE_W}, {RECIPE_COMBINE, RECIPE_B},
        {RECIPE_ATTENTION, RECIPE_F},  {RECIPE_DISPATCH, RECIPE_F},   {RECIPE_MLP, RECIPE_B},
        {RECIPE_DISPATCH, RECIPE_B},   {RECIPE_MLP, RECIPE_W},        {RECIPE_MLP, RECIPE_F},
        {RECIPE_COMBINE, RECIPE_F},    {RECIPE_ATTENTION, RECIPE_B},  {RECIPE_ATTENTION, RECIPE_W},
        {RECIPE_PERCEPTRON, RECIPE_F},
    };
    Recipe recipe = {.share = 0};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (components & 1u << entries[i].component)
            append(&recipe, recipe_communicates[entries[i].component] ? RECIPE_COMM : RECIPE_COMPUTE, entries[i]);
    return recipe;
}

RecipeFound recipe_shortest(uint32_t components, uint16_t share, uint16_t whole, const Costs *costs)
{
    Recipe start = recipe_published(components);
    start.share = share;
    start.whole = whole;
    return recipe_search(&start, costs, RECIPE_NODES_MAX);
}
