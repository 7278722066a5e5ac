/* How good are the orders that the search finds, and how long does it take? Prints one line per placement, costs,
   memory and number of microbatches: bubble rate, its lower bound, the published rate if there is one, seconds. */

#include "compiler/search/search.h"
#include "base/clock.h"
#include "tests/search/costs_of.h"
#include "tests/search/placement.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t effort = 1;

/* Searches an order and prints its figures. `memory` is in halves of an activation, the same for all ranks. `known`: a
   bubble rate to compare with; < 0: none. */
static void find(const char *name, Schedule *schedule, const Costs *costs, int64_t memory, double known, Arena *arena)
{
    int64_t *limits = arena_array(arena, schedule->ranks, sizeof *limits);
    double work = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++)
        limits[r] = memory;
    for (uint32_t c = 0; c < schedule->chunk_counts[0]; c++)
        work += (costs_pass(costs, 0, COST_F) + costs_pass(costs, 0, COST_B)) *
                schedule->pipes[schedule->chunks[0][c].pipe].microbatches;
    const SearchTask task = {costs, SEARCH_FORWARD, SEARCH_INPUT, SEARCH_WEIGHT, limits, effort, false};
    SearchProgress result;
    const int64_t start = clock_nanoseconds();
    search_order(schedule, &task, NULL, (Span){0, 0}, arena, &result);
    printf("search_%s_p%u_m%u_memory%lld %.4f bubble rate (no order below %.4f", name, schedule->ranks,
           schedule->microbatches, (long long)memory, 1 - work / result.cost, 1 - work / result.bound);
    if (known >= 0)
        printf(", published %.4f", known);
    printf("; %u orders, %.2f s)\n", result.tried, (double)(clock_nanoseconds() - start) / 1e9);
}

int main(int argc, char **argv)
{
    Arena arena = {0};
    if (argc > 1)
        effort = (uint32_t)strtoul(argv[1], NULL, 10);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        for (uint32_t times = 3; times <= 8; times += times == 3 ? 1 : 4)
            for (uint32_t memory = 1; memory <= 2; memory++) {
                const uint32_t p = published[i].ranks;
                const Costs costs =
                    costs_of(published[i].forward, published[i].input, published[i].weight, published[i].message);
                Schedule schedule;
                placement_usual(&arena, p, 1, false, 1, times * p, &schedule);
                find(published[i].model, &schedule, &costs, 2 * memory * p,
                     schedule.microbatches == published[i].microbatches ? published[i].published[memory - 1] : -1,
                     &arena);
                arena_free(&arena);
            }
    static const struct {
        const char *name;
        uint32_t chunks, pipes, thirds; /* a rank's memory is thirds * ranks / 3 + 1 activations of a stage */
        bool waves;
    } placements[] = {{"v", 2, 1, 6, true},
                      {"v_half", 2, 1, 3, true},
                      {"v_min", 2, 1, 2, true},
                      {"loop2", 2, 1, 9, false},
                      {"loop4", 4, 1, 12, false},
                      {"waves4", 4, 1, 12, true},
                      {"bidirectional", 1, 2, 3, false}};
    for (uint32_t p = 4; p <= 16; p *= 2)
        for (size_t i = 0; i < sizeof placements / sizeof *placements; i++)
            for (int paper = 0; paper < 2; paper++) {
                const Costs costs = paper ? costs_of(29.718, 29.444, 19.927, 0.527) : costs_unit;
                Schedule schedule;
                char name[40];
                snprintf(name, sizeof name, "%s%s", placements[i].name, paper ? "_6.2B" : "");
                placement_usual(&arena, p, placements[i].chunks, placements[i].waves, placements[i].pipes,
                                3 * p / placements[i].pipes, &schedule);
                find(name, &schedule, &costs, 2 * (placements[i].thirds * p / 3 + 1), -1, &arena);
                arena_free(&arena);
            }
    return 0;
}
