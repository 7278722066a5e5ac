/* The orders that the search finds are legal, within the memory, the same in every run, and their bubble rate is at
   most that of the zero-bubble paper's schedulers for its models. */

#include "compiler/prove/prove.h"
#include "compiler/search/search.h"
#include "tests/search/costs_of.h"
#include "tests/search/placement.h"
#include "tests/test.h"

#include <string.h>

/* The bubble rate of the timeline, not the one that the search reports. Checks that the order is legal and stays within
   `memory`. */
static double checked_rate(Schedule *schedule, const Costs *costs, int64_t memory, Arena *arena)
{
    const Source source = {.path = "search", .text = "", .size = 0};
    Diagnostics *diagnostics = diag_new(arena, &source);
    PassTable table;
    Timeline timeline;
    assert_true(prove_passes(schedule, arena, diagnostics, &table));
    assert_true(timeline_run(schedule, &table, costs, arena, &timeline));
    double cost = 0, work = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankTimes times = timeline_rank(schedule, &timeline, r);
        cost = times.end - times.start > cost ? times.end - times.start : cost;
        work += times.busy / schedule->ranks;
        int64_t held = 0;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            held += schedule->orders[r].actions[i].kind == ACTION_F ? SEARCH_FORWARD : -1;
            assert_true(held <= memory);
        }
        assert_int_equal(held, 0);
    }
    return (cost - work) / cost;
}

static void search(Schedule *schedule, const Costs *costs, int64_t memory, uint32_t effort, Arena *arena)
{
    int64_t *limits = arena_array(arena, schedule->ranks, sizeof *limits);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        limits[r] = memory;
    const SearchTask task = {costs, SEARCH_FORWARD, SEARCH_INPUT, SEARCH_WEIGHT, limits, effort, false};
    search_order(schedule, &task, NULL, (Span){0, 0}, arena, NULL);
}

TEST(never_above_the_published_rate)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        for (uint32_t times = 1; times <= 2; times++) {
            Arena arena = {0};
            Schedule schedule;
            const Costs costs =
                costs_of(published[i].forward, published[i].input, published[i].weight, published[i].message);
            const int64_t memory = 2 * (int64_t)times * published[i].ranks;
            placement_usual(&arena, published[i].ranks, 1, false, 1, published[i].microbatches, &schedule);
            search(&schedule, &costs, memory, 1, &arena);
            const double rate = checked_rate(&schedule, &costs, memory, &arena);
            print_message("%s, memory of %u 1F1B: %.4f, published %.4f\n", published[i].model, times, rate,
                          published[i].published[times - 1]);
            assert_true(rate < published[i].published[times - 1] + 0.00005);
            arena_free(&arena);
        }
}

TEST(any_placement_and_always_the_same)
{
    for (uint32_t chunks = 1; chunks <= 2; chunks++)
        for (int waves = 0; waves < 2; waves++)
            for (uint32_t pipes = 1; pipes <= 2; pipes++) {
                Arena arena = {0};
                Schedule one, two;
                const Costs costs = costs_of(2, 3, 1, 0.25);
                const int64_t memory = 2 * 4 * (int64_t)(chunks * pipes + 1);
                placement_usual(&arena, 4, chunks, waves, pipes, 6, &one);
                placement_usual(&arena, 4, chunks, waves, pipes, 6, &two);
                search(&one, &costs, memory, 1, &arena);
                search(&two, &costs, memory, 1, &arena);
                const double rate = checked_rate(&one, &costs, memory, &arena);
                assert_true(rate >= 0 && rate < 0.5);
                for (uint32_t r = 0; r < one.ranks; r++) {
                    assert_int_equal(one.orders[r].count, two.orders[r].count);
                    for (uint32_t i = 0; i < one.orders[r].count; i++) {
                        const Action *a = &one.orders[r].actions[i], *b = &two.orders[r].actions[i];
                        assert_true(a->kind == b->kind && a->pipe == b->pipe && a->stage == b->stage &&
                                    a->microbatch == b->microbatch);
                    }
                }
                arena_free(&arena);
            }
}

TEST(more_effort_never_finds_less)
{
    double before = 1;
    for (uint32_t effort = 1; effort <= 3; effort++) {
        Arena arena = {0};
        Schedule schedule;
        const Costs costs = costs_of(3, 4, 2, 0.5);
        placement_usual(&arena, 4, 2, true, 1, 8, &schedule);
        search(&schedule, &costs, 11, effort, &arena);
        const double rate = checked_rate(&schedule, &costs, 11, &arena);
        assert_true(rate <= before);
        before = rate;
        arena_free(&arena);
    }
}

/* For any placement there is an order in the memory that search_least_memory returns. */
TEST(the_least_memory_is_enough)
{
    for (uint32_t chunks = 1; chunks <= 3; chunks++)
        for (int waves = 0; waves < 2; waves++)
            for (uint32_t pipes = 1; pipes <= 2; pipes++) {
                Arena arena = {0};
                Schedule schedule;
                placement_usual(&arena, 4, chunks, waves, pipes, 5, &schedule);
                const int64_t least = search_least_memory(&schedule, 0, SEARCH_FORWARD);
                assert_int_equal(least, 2 * chunks);
                search(&schedule, &costs_unit, least, 1, &arena);
                checked_rate(&schedule, &costs_unit, least, &arena);
                arena_free(&arena);
            }
}

int main(void) { return test_program("search", NULL, NULL); }
