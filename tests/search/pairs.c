/* The search with F&Bs, compared with published orders, proven optima and itself. */

#include "compiler/prove/prove.h"
#include "compiler/schedule/bound.h"
#include "compiler/search/search.h"
#include "tests/search/costs_of.h"
#include "tests/search/placement.h"
#include "tests/timeline/compiled.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Found {
    Schedule schedule;
    SearchProgress progress;
} Found;

static atomic_int stop;

/* Ends a search with F&Bs at its first report after `most` orders. Such a search reports every 1024 orders. */
static void stop_after(void *most, const SearchProgress *progress)
{
    if (progress->tried >= *(const uint32_t *)most)
        stop = 1;
}

static Costs costs_with(double forward, double input, double weight, double message, double pair)
{
    Costs costs = costs_of(forward, input, weight, message);
    costs.all[COST_FB] = pair;
    return costs;
}

static uint32_t most_orders = UINT32_MAX; /* that a search tries */

/* Searches, with F&Bs if `overlap`. `memory` is in activations, the same for all ranks. */
static Found search_modes(Schedule placed, const Costs *costs, int64_t memory, uint32_t effort, bool overlap,
                          Arena *arena)
{
    const SearchControl control = {&stop, stop_after, &most_orders};
    const int stopped = stop;
    Found found = {.schedule = placed};
    int64_t *limits = arena_array(arena, placed.ranks, sizeof *limits);
    found.schedule.orders = arena_array(arena, placed.ranks, sizeof *found.schedule.orders);
    for (uint32_t r = 0; r < placed.ranks; r++)
        limits[r] = memory;
    const SearchTask task = {
        .costs = costs, .forward = 1, .weight = -1, .memory = limits, .effort = effort, .overlap = overlap};
    search_order(&found.schedule, &task, &control, (Span){0, 0}, arena, &found.progress);
    stop = stopped;
    return found;
}

static Found search(Schedule placed, const Costs *costs, int64_t memory, uint32_t effort, Arena *arena)
{
    return search_modes(placed, costs, memory, effort, true, arena);
}

/* The makespan of dpc's timeline, after its proofs. */
static double makespan_of(const Schedule *schedule, const Costs *costs, Arena *arena)
{
    static const Source source = {.path = "search", .text = ""};
    PassTable table;
    Timeline times;
    assert_true(prove_passes(schedule, arena, diag_new(arena, &source), &table));
    assert_true(timeline_run(schedule, &table, costs, arena, &times));
    return times.makespan;
}

/* The makespan of the order found. Checks the memory of each rank, and the cost and the bound that the search
   reports. */
static double proven(const Found *found, const Costs *costs, int64_t memory, Arena *arena)
{
    const Schedule *schedule = &found->schedule;
    const double makespan = makespan_of(schedule, costs, arena);
    const MemoryLimits own = limits_of_orders(schedule, arena);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        assert_true(own.most[r] <= (double)memory);
    assert_true(fabs(makespan - found->progress.cost) <= 1e-6 * makespan);
    assert_true(found->progress.bound <= makespan * (1 + 1e-6));
    return makespan;
}

static Found search_v(uint32_t ranks, uint32_t microbatches, const Costs *costs, int64_t memory, uint32_t effort,
                      Arena *arena)
{
    Schedule schedule;
    placement_usual(arena, ranks, 2, true, 1, microbatches, &schedule);
    return search(schedule, costs, memory, effort, arena);
}

/* The search is never above these makespans: optima that an exact solver has proven, and those of known orders. */
TEST(known_makespans)
{
    static const struct {
        uint32_t ranks, microbatches;
        double pair, makespan;
    } cases[] = {{2, 4, 2.4, 23.0}, {3, 5, 2.1, 28.5},  {3, 5, 2.3, 29.5},  {3, 6, 2.4, 35.0},
                 {4, 8, 2.4, 46.8}, {8, 16, 2.4, 96.0}, {8, 32, 2.4, 173.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena arena = {0};
        const Costs costs = costs_with(1, 1, 1, 0, cases[i].pair);
        const Found found = search_v(cases[i].ranks, cases[i].microbatches, &costs, 2 * cases[i].ranks + 1, 1, &arena);
        const double makespan = proven(&found, &costs, 2 * cases[i].ranks + 1, &arena);
        print_message("%u ranks, %u microbatches: %g\n", cases[i].ranks, cases[i].microbatches, makespan);
        assert_true(makespan <= cases[i].makespan + 1e-6);
        arena_free(&arena);
    }
}

/* Loops of two chunks, in the memory of Megatron's order (schedules/megatron-moe.dps): always shorter than that. */
TEST(loops)
{
    static const struct {
        uint32_t ranks, microbatches;
        bool uneven;
        double megatron, makespan;
    } cases[] = {{4, 16, false, 88.8, 87.6},   {8, 16, false, 103.2, 100.6}, {8, 32, false, 180, 177.6},
                 {8, 33, false, 190.2, 185.2}, {8, 64, false, 333.6, 331.2}, {8, 32, true, 188.4, 183.8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena arena = {0};
        Schedule schedule;
        const int64_t memory = 3 * cases[i].ranks;
        const Costs costs = cases[i].uneven ? costs_with(1, 1.2, 0.8, 0.1, 2.4) : costs_with(1, 1, 1, 0, 2.4);
        placement_usual(&arena, cases[i].ranks, 2, false, 1, cases[i].microbatches, &schedule);
        const Found found = search(schedule, &costs, memory, 1, &arena);
        const double makespan = proven(&found, &costs, memory, &arena);
        print_message("%u ranks, %u microbatches: %g, Megatron %g\n", cases[i].ranks, cases[i].microbatches, makespan,
                      cases[i].megatron);
        assert_true(makespan <= cases[i].makespan + 1e-6);
        arena_free(&arena);
    }
}

static double random_time(uint64_t *seed) { return 1 + (double)random_below(seed, 100) / 100; }

/* With the memory of a published order the search never finds a longer one, for random costs, even if it stops at
   once. In some cases a B takes less time than an I and a W. PAIR_ROUNDS=500 tries 500 costs for each number of
   ranks. */
TEST(never_longer_than_a_published_order)
{
    static const char *const names[] = {
        "dualpipe", "dualpipev", "ebb-v", "ebb-two",          "megatron-moe", "ebb-loop", "zb-v",   "v-half",
        "zb-h1",    "zb-h2",     "1f1b",  "interleaved-1f1b", "hanayo",       "chimera",  "bitpipe"};
    const char *const wanted = getenv("PAIR_ROUNDS");
    const int rounds = wanted ? atoi(wanted) : 4;
    uint64_t seed = 1;
    stop = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100];
        uint32_t cases = 0;
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        for (int64_t ranks = 2; ranks <= 8; ranks++)
            for (int round = 0; round < rounds; round++) {
                Arena arena = {0};
                Compilation c;
                Timeline times;
                Costs costs = costs_of(random_time(&seed), random_time(&seed), random_time(&seed), 0);
                costs.latency = random_below(&seed, 2) ? 0 : random_time(&seed) / 4;
                costs.overlap = 0.6 + (double)random_below(&seed, 5) / 10;
                if (random_below(&seed, 2))
                    costs.all[COST_B] = fmax(costs.all[COST_I], 0.8 * (costs.all[COST_I] + costs.all[COST_W]));
                const int64_t microbatches = 1 + (int64_t)random_below(&seed, 8 * (uint64_t)ranks);
                if (compiled_for(path, ranks, microbatches, &costs, &arena, &c)) {
                    assert_true(timeline_run(&c.schedule, &c.table, &costs, &arena, &times));
                    const MemoryLimits own = limits_of_orders(&c.schedule, &arena);
                    double most = 0;
                    for (uint32_t r = 0; r < c.schedule.ranks; r++) {
                        most = fmax(most, own.most[r]);
                        most = fmax(most, (double)search_least_memory(&c.schedule, r, 1));
                    }
                    const Found found = search(c.schedule, &costs, (int64_t)most, 1, &arena);
                    const double makespan = proven(&found, &costs, (int64_t)most, &arena);
                    if (makespan > times.makespan + 1e-6)
                        fail_msg("%s: %u ranks, %u microbatches: %g, found %g", names[i], c.schedule.ranks,
                                 c.schedule.microbatches, times.makespan, makespan);
                    cases++;
                }
                arena_free(&arena);
            }
        assert_true(cases >= 6);
    }
    stop = 0;
}

/* With little more than half of DualPipeV's memory (10 of 17 activations), in which no published order with F&Bs fits,
   the search with F&Bs finds no longer order than without them. */
TEST(never_longer_than_without_pairs)
{
    Arena arena = {0};
    const Costs costs = costs_with(1, 1.2, 0.8, 0.1, 2.4);
    const Found found = search_v(8, 16, &costs, 10, 1, &arena);
    const Found without = search_modes(found.schedule, &costs, 10, 1, false, &arena);
    const double makespan = proven(&found, &costs, 10, &arena), other = makespan_of(&without.schedule, &costs, &arena);
    print_message("%g, without F&Bs %g\n", makespan, other);
    assert_true(makespan <= other + 1e-6);
    arena_free(&arena);
}

TEST(always_the_same_and_more_effort_never_finds_less)
{
    Arena arena = {0};
    const Costs costs = costs_with(1, 1.2, 0.8, 0.1, 2.4);
    const Found first = search_v(6, 18, &costs, 13, 1, &arena), again = search_v(6, 18, &costs, 13, 1, &arena);
    const Found more = search_v(6, 18, &costs, 13, 4, &arena);
    for (uint32_t r = 0; r < 6; r++) {
        assert_int_equal(first.schedule.orders[r].count, again.schedule.orders[r].count);
        assert_memory_equal(first.schedule.orders[r].actions, again.schedule.orders[r].actions,
                            first.schedule.orders[r].count * sizeof(Action));
    }
    assert_true(proven(&more, &costs, 13, &arena) <= proven(&first, &costs, 13, &arena) + 1e-6);
    assert_true(proven(&first, &costs, 13, &arena) < 105.6 - 1e-6); /* ebb-v, the shortest rule known */
    arena_free(&arena);
}

/* Loops, waves and two pipes: the search uses F&Bs, which save time here, within the memory limit. */
TEST(any_placement)
{
    for (uint32_t chunks = 1; chunks <= 3; chunks++)
        for (uint32_t pipes = 1; pipes <= 2; pipes++) {
            Arena arena = {0};
            Schedule schedule;
            const Costs costs = costs_with(1, 1, 1, 0.1, 2.1);
            placement_usual(&arena, 4, chunks, chunks == 3, pipes, 12 / pipes, &schedule);
            const int64_t memory = 4 * chunks + 1;
            most_orders = 400 * 1024 / (chunks * chunks);
            const Found found = search(schedule, &costs, memory, 1, &arena);
            most_orders = UINT32_MAX;
            const double makespan = proven(&found, &costs, memory, &arena);
            uint32_t pairs = 0;
            for (uint32_t i = 0; i < found.schedule.orders[0].count; i++)
                pairs += found.schedule.orders[0].actions[i].overlap;
            print_message("%u chunks, %u pipes: %g, no less than %g\n", chunks, pipes, makespan, found.progress.bound);
            assert_true(pairs > 0);
            arena_free(&arena);
        }
}

/* There is always an order: in the least memory, for any number of microbatches, and if the search stops early or at
   once. */
TEST(the_least_memory_is_enough)
{
    for (int stops = 0; stops < 2; stops++)
        for (uint32_t ranks = 1; ranks <= 4; ranks++)
            for (uint32_t microbatches = 1; microbatches <= 16; microbatches += 5) {
                Arena arena = {0};
                const Costs costs = costs_with(1, 1.2, 0.8, 0.1, 2.4);
                stop = stops;
                most_orders = 2 * 1024;
                const Found found = search_v(ranks, microbatches, &costs, 2, 1, &arena);
                most_orders = UINT32_MAX;
                stop = 0;
                proven(&found, &costs, 2, &arena);
                arena_free(&arena);
            }
}

int main(void) { return test_program("pairs", NULL, NULL); }
