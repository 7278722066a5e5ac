/* recipe_search: never longer than the published order, as short as the best of all orders, with a valid bound. */

#include "compiler/search/search_recipe.h"
#include "tests/search/component_costs.h"
#include "tests/sanitized.h"
#include "tests/test.h"

#include <math.h>

static double makespan_of(const Recipe *recipe, const Costs *costs)
{
    Arena arena = {0};
    const double makespan = recipe_times(recipe, costs, &arena).makespan;
    arena_free(&arena);
    return makespan;
}

/* --- brute force: all orders, each simulated by another method, which delays starts until all dependences are met
   --- */

typedef struct Brute {
    RecipeEntry entries[RECIPE_STREAMS][RECIPE_ENTRIES];
    uint32_t counts[RECIPE_STREAMS], layers;
    double times[RECIPE_COMPONENTS][RECIPE_PASSES];
    bool has[RECIPE_COMPONENTS];
    double best;
} Brute;

typedef double Starts[6][RECIPE_COMPONENTS][RECIPE_PASSES];

static bool push(const Brute *b, Starts starts, uint32_t layer, RecipeEntry entry, uint32_t before_layer,
                 RecipeEntry before)
{
    const double ready = starts[before_layer][before.component][before.pass] + b->times[before.component][before.pass];
    double *start = &starts[layer][entry.component][entry.pass];
    const bool moves = ready > *start;
    *start = moves ? ready : *start;
    return moves;
}

/* The next component of the layer in the direction `step`, or -1. */
static int neighbour(const Brute *b, int c, int step)
{
    for (c += step; c >= 0 && c < RECIPE_COMPONENTS; c += step)
        if (b->has[c])
            return c;
    return -1;
}

static bool push_needs(const Brute *b, Starts starts, uint32_t layer)
{
    bool moved = false;
    for (int c = 0; c < RECIPE_COMPONENTS; c++) {
        if (!b->has[c])
            continue;
        const uint8_t of = (uint8_t)c;
        for (uint8_t pass = RECIPE_F; pass <= RECIPE_B; pass++) {
            const int step = pass == RECIPE_F ? -1 : 1, inner = neighbour(b, c, step);
            const int other = inner >= 0 ? inner : neighbour(b, step < 0 ? RECIPE_COMPONENTS : -1, step);
            if (inner >= 0 || layer)
                moved |= push(b, starts, layer, (RecipeEntry){of, pass}, inner >= 0 ? layer : layer - 1,
                              (RecipeEntry){(uint8_t)other, pass});
        }
        moved |= push(b, starts, layer, (RecipeEntry){of, RECIPE_W}, layer, (RecipeEntry){of, RECIPE_B});
    }
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < b->counts[s]; i++)
            if (i || layer)
                moved |= push(b, starts, layer, b->entries[s][i], i ? layer : layer - 1,
                              b->entries[s][i ? i - 1 : b->counts[s] - 1]);
    return moved;
}

static double pushed_makespan(const Brute *b)
{
    Starts starts = {{{0}}};
    double end = 0;
    for (uint32_t layer = 0; layer < b->layers; layer++)
        for (int rounds = 0; push_needs(b, starts, layer); rounds++)
            if (rounds > RECIPE_ENTRIES) /* the streams deadlock */
                return INFINITY;
    for (uint32_t layer = 0; layer < b->layers; layer++)
        for (int s = 0; s < RECIPE_STREAMS; s++)
            for (uint32_t i = 0; i < b->counts[s]; i++) {
                const RecipeEntry entry = b->entries[s][i];
                end = fmax(end, starts[layer][entry.component][entry.pass] + b->times[entry.component][entry.pass]);
            }
    return end;
}

static void try_all(Brute *b, int stream, uint32_t from)
{
    if (stream == RECIPE_STREAMS) {
        b->best = fmin(b->best, pushed_makespan(b));
        return;
    }
    if (from >= b->counts[stream]) {
        try_all(b, stream + 1, 0);
        return;
    }
    for (uint32_t i = from; i < b->counts[stream]; i++) {
        RecipeEntry *entries = b->entries[stream];
        const RecipeEntry first = entries[from], other = entries[i];
        entries[from] = other;
        entries[i] = first;
        try_all(b, stream, from + 1);
        entries[from] = first;
        entries[i] = other;
    }
}

/* The shortest makespan of all orders. Times must not be 0: a deadlock shows as starts that grow forever. */
static double best_of_all(uint32_t components, const Costs *costs)
{
    Brute b = {.layers = recipe_layers(costs), .best = INFINITY};
    for (uint8_t c = 0; c < RECIPE_COMPONENTS; c++)
        for (uint8_t pass = 0; (components & 1u << c) && pass < RECIPE_PASSES; pass++) {
            const int stream = recipe_communicates[c] ? RECIPE_COMM : RECIPE_COMPUTE;
            b.has[c] = true;
            if (stream == RECIPE_COMM && pass == RECIPE_W)
                continue;
            b.times[c][pass] = fmax(costs->parts[c][pass], 0);
            b.entries[stream][b.counts[stream]++] = (RecipeEntry){c, pass};
        }
    try_all(&b, 0, 0);
    return b.best;
}

TEST(is_never_longer_than_the_published_order)
{
    uint64_t seed = 21;
    uint32_t shorter = 0;
    for (uint32_t i = 0; i < cases(1000); i++) {
        const Costs costs = random_component_costs(&seed, FOUR_COMPONENTS, 6);
        const Recipe published = recipe_published(FOUR_COMPONENTS);
        const RecipeFound found = recipe_shortest(FOUR_COMPONENTS, 0, 0, &costs);
        const double fixed = makespan_of(&published, &costs);
        RecipeFault fault;
        if (!recipe_check(&found.recipe, &fault))
            fail_msg("%s", fault.text);
        assert_int_equal(found.recipe.counts[RECIPE_COMPUTE], 6);
        assert_int_equal(found.recipe.counts[RECIPE_COMM], 4);
        assert_true(found.makespan == makespan_of(&found.recipe, &costs));
        assert_true(found.bound == found.makespan); /* proven optimal */
        assert_true(found.makespan <= fixed);
        shorter += found.makespan < fixed;
        if (found.makespan == fixed)
            assert_memory_equal(&found.recipe, &published, sizeof published);
        if (i % 10 == 0)
            assert_true(fabs(best_of_all(FOUR_COMPONENTS, &costs) - found.makespan) < 1e-9 * found.makespan);
    }
    assert_true(shorter > cases(100) && shorter < cases(1000));
}

TEST(finds_the_best_of_other_components)
{
    uint64_t seed = 22;
    for (uint32_t i = 0; i < cases(200); i++) {
        const uint32_t components = 1 + random_below(&seed, ALL_COMPONENTS);
        if ((components & 1 << RECIPE_ATTENTION && components & 1 << RECIPE_MLP && components & 1 << RECIPE_PERCEPTRON))
            continue; /* too many: 9! orders */
        const Costs costs = random_component_costs(&seed, components, 4);
        assert_int_equal(recipe_components_timed(&costs), components);
        const RecipeFound found = recipe_shortest(components, 0, 0, &costs);
        assert_true(fabs(best_of_all(components, &costs) - found.makespan) < 1e-9 * found.makespan);
    }
}

/* A share of multiprocessors for communication changes the times of both streams, so another order may be the
   shortest. */
TEST(takes_the_share_into_account)
{
    uint64_t seed = 23;
    for (int i = 0; i < 30; i++) {
        Costs costs = random_component_costs(&seed, FOUR_COMPONENTS, 3), slowed;
        costs.multiprocessors = 40;
        const RecipeFound found = recipe_shortest(FOUR_COMPONENTS, 32, 128, &costs);
        assert_true(found.recipe.share == 32 && found.recipe.whole == 128);
        assert_true(found.makespan == makespan_of(&found.recipe, &costs));
        slowed = costs;
        for (int c = 0; c < RECIPE_COMPONENTS; c++)
            for (int pass = 0; pass < RECIPE_PASSES; pass++)
                slowed.parts[c][pass] *= recipe_communicates[c] ? 40.0 / 32 : 128.0 / 96;
        assert_true(fabs(best_of_all(FOUR_COMPONENTS, &slowed) - found.makespan) < 1e-9 * found.makespan);
    }
}

/* A search of more than RECIPE_EXACT entries that a limit stops: its bound is never above the optimum. */
TEST(a_stopped_search_proves_a_bound)
{
    uint64_t seed = 24;
    uint32_t open = 0;
    for (uint32_t i = 0; i < cases(100); i++) {
        const Costs costs = random_component_costs(&seed, ALL_COMPONENTS, 4);
        const Recipe published = recipe_published(ALL_COMPONENTS);
        const RecipeFound whole = recipe_search(&published, &costs, UINT64_MAX);
        const RecipeFound cut = recipe_search(&published, &costs, 12), again = recipe_search(&published, &costs, 12);
        assert_true(whole.bound == whole.makespan);
        assert_true(cut.bound <= whole.makespan && whole.makespan <= cut.makespan);
        assert_true(cut.makespan <= makespan_of(&published, &costs));
        assert_memory_equal(&cut, &again, sizeof cut);
        open += cut.bound < cut.makespan;
    }
    assert_true(open > cases(20));
}

TEST(what_takes_no_time_is_no_component)
{
    Costs costs = costs_unit;
    assert_int_equal(recipe_components_timed(&costs), 0);
    costs.parts[RECIPE_MLP][RECIPE_F] = 0;
    assert_int_equal(recipe_components_timed(&costs), 0);
    costs.parts[RECIPE_DISPATCH][RECIPE_B] = 1;
    assert_int_equal(recipe_components_timed(&costs), 1 << RECIPE_MLP | 1 << RECIPE_DISPATCH);
}

int main(void) { return test_program("recipe", NULL, NULL); }
