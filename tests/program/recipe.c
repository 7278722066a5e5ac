/* A recipe that recipe_check accepts can be run; one that it refuses cannot. */

#include "program/times/recipe_times.h"
#include "tests/program/generator.h"
#include "tests/test.h"

#include <math.h>

/* Checks the rules of a recipe independently: the F of a layer in order, the B in reverse order, each W after its B. */
static bool in_order(const RecipeEntry *order, uint32_t count)
{
    int forward = -1, backward = RECIPE_COMPONENTS;
    bool had[RECIPE_COMPONENTS] = {false};
    for (uint32_t i = 0; i < count; i++) {
        const int c = order[i].component;
        if (order[i].pass == RECIPE_F ? c <= forward : order[i].pass == RECIPE_B ? c >= backward : !had[c])
            return false;
        forward = order[i].pass == RECIPE_F ? c : forward;
        backward = order[i].pass == RECIPE_B ? c : backward;
        had[c] = had[c] || order[i].pass == RECIPE_B;
    }
    return true;
}

/* Whether `order` has the entries of one stream in the order in which the recipe has them. */
static bool keeps_stream(const Recipe *recipe, RecipeStream stream, const RecipeEntry *order, uint32_t count)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < count && next < recipe->counts[stream]; i++)
        next += memcmp(&order[i], &recipe->entries[stream][next], sizeof *order) == 0;
    return next == recipe->counts[stream];
}

TEST(what_is_right_can_be_issued)
{
    uint64_t seed = 5;
    for (int i = 0; i < 2000; i++) {
        const Recipe recipe = random_recipe(&seed);
        RecipeEntry order[RECIPE_ENTRIES];
        RecipeFault fault;
        if (!recipe_check(&recipe, &fault))
            fail_msg("%s", fault.text);
        const uint32_t count = recipe_order(&recipe, order);
        assert_int_equal(count, recipe.counts[RECIPE_COMPUTE] + recipe.counts[RECIPE_COMM]);
        assert_true(in_order(order, count));
        assert_true(keeps_stream(&recipe, RECIPE_COMPUTE, order, count) &&
                    keeps_stream(&recipe, RECIPE_COMM, order, count));
    }
}

/* Whether some interleaving of the lists compute and comm keeps the rules. `order` begins with i entries of compute and
   k of comm. */
static bool some_order_is_right(const Recipe *recipe, RecipeEntry *order, uint32_t i, uint32_t k)
{
    if (!in_order(order, i + k))
        return false;
    if (i == recipe->counts[RECIPE_COMPUTE] && k == recipe->counts[RECIPE_COMM])
        return true;
    if (i < recipe->counts[RECIPE_COMPUTE]) {
        order[i + k] = recipe->entries[RECIPE_COMPUTE][i];
        if (some_order_is_right(recipe, order, i + 1, k))
            return true;
    }
    if (k == recipe->counts[RECIPE_COMM])
        return false;
    order[i + k] = recipe->entries[RECIPE_COMM][k];
    return some_order_is_right(recipe, order, i, k + 1);
}

TEST(what_is_refused_cannot)
{
    uint64_t seed = 6;
    int refused = 0, accepted = 0;
    for (int i = 0; i < 3000; i++) {
        Recipe recipe = random_recipe(&seed);
        RecipeFault fault;
        for (int s = 0; s < RECIPE_STREAMS; s++) {
            if (recipe.counts[s] < 2)
                continue;
            RecipeEntry *a = &recipe.entries[s][random_below(&seed, recipe.counts[s])];
            RecipeEntry *b = &recipe.entries[s][random_below(&seed, recipe.counts[s])];
            const RecipeEntry kept = *a;
            *a = *b;
            *b = kept;
        }
        RecipeEntry order[RECIPE_ENTRIES];
        const bool good = recipe_check(&recipe, &fault);
        assert_int_equal(good, some_order_is_right(&recipe, order, 0, 0));
        accepted += good;
        refused += !good;
        if (!good)
            assert_true(fault.text[0] && fault.index < recipe.counts[fault.stream]);
    }
    assert_true(refused > 500 && accepted > 500);
}

static const RecipeSpan *span_of(const RecipeTimes *times, uint32_t layer, RecipeEntry entry)
{
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++)
            if (times->spans[s][i].layer == layer && memcmp(&times->spans[s][i].entry, &entry, sizeof entry) == 0)
                return &times->spans[s][i];
    fail_msg("no such span");
    return NULL;
}

/* When the last entry of a pass in a layer ends; 0: it has none. */
static double end_of_layer(const RecipeTimes *times, uint32_t layer, RecipePass pass)
{
    double end = 0;
    for (int s = 0; s < RECIPE_STREAMS; s++)
        for (uint32_t i = 0; i < times->counts[s]; i++)
            if (times->spans[s][i].layer == layer && times->spans[s][i].entry.pass == pass)
                end = fmax(end, times->spans[s][i].end);
    return end;
}

/* The time of an entry in an F&B. If the recipe has a share, computation runs on the multiprocessors that comm leaves.
   Communication takes longer on fewer multiprocessors than costs->multiprocessors. */
static double slowed(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry)
{
    const double time = costs->parts[entry.component][entry.pass], others = recipe->whole - recipe->share;
    if (!recipe->share)
        return time;
    if (entry.component != RECIPE_DISPATCH && entry.component != RECIPE_COMBINE)
        return time * recipe->whole / others;
    const double own = stream == RECIPE_COMM ? recipe->share : others;
    return own < costs->multiprocessors ? time * costs->multiprocessors / own : time;
}

/* Every entry starts at the earliest time at which its stream is free and what it needs has ended: another entry of its
   layer, or the same pass of the layer before. */
TEST(nothing_waits_for_nothing)
{
    uint64_t seed = 7;
    for (int i = 0; i < 500; i++) {
        Arena arena = {0};
        const Recipe recipe = random_recipe(&seed);
        Costs costs = costs_unit;
        double in_turn = 0, work = 0;
        costs.multiprocessors = random_below(&seed, 2) * recipe.whole / 2;
        costs.layers = 1 + random_below(&seed, 4);
        for (int c = 0; c < RECIPE_COMPONENTS; c++)
            for (int pass = 0; pass < RECIPE_PASSES; pass++) {
                costs.parts[c][pass] = random_below(&seed, 9);
                in_turn += costs.layers * costs.parts[c][pass] * recipe_has(&recipe, (ModelPart)c, (uint8_t)pass);
            }
        const RecipeTimes times = recipe_times(&recipe, &costs, &arena);
        double last = 0;
        for (int s = 0; s < RECIPE_STREAMS; s++)
            for (uint32_t k = 0; k < times.counts[s]; k++) {
                const RecipeSpan *span = &times.spans[s][k];
                RecipeEntry needed;
                double ready = 0;
                if (recipe_needs(&recipe, span->entry, &needed))
                    ready = span_of(&times, span->layer, needed)->end;
                else if (span->layer)
                    ready = end_of_layer(&times, span->layer - 1, span->entry.pass);
                assert_true(span->start == fmax(ready, k ? span[-1].end : 0));
                const double took = slowed(&recipe, &costs, (RecipeStream)s, span->entry);
                assert_true(fabs(span->end - span->start - took) < 1e-9);
                work += took;
                last = fmax(last, span->end);
            }
        assert_true(times.makespan == last && times.in_turn == in_turn);
        assert_true(fabs(times.busy[RECIPE_COMPUTE] + times.busy[RECIPE_COMM] - work) < 1e-6);
        assert_true(times.hidden >= 0 && times.hidden <= times.busy[RECIPE_COMM] &&
                    times.hidden <= times.busy[RECIPE_COMPUTE]);
        /* not equal: times at which both streams are idle add to the makespan */
        assert_true(times.makespan >= work - times.hidden - 1e-6);
        arena_free(&arena);
    }
}

int main(void) { return test_program("recipe", NULL, NULL); }
