/* Compares the schedules of docs/discovery.md to the published ones that they improve: for random sizes and costs
   they are never longer and never hold more activations. `build/tests/timeline/discovered CASES` tries CASES cases. */

#include "tests/timeline/compiled.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t cases = 200;

typedef struct Result {
    double makespan;
    uint32_t peak;
} Result;

static double fraction(uint64_t *seed, uint64_t steps) { return (double)random_below(seed, steps + 1) / (double)steps; }

/* F = 1, F <= I <= 1.5 F, W <= I, B = I + W, max(F, B) < FB <= F + B, comm <= 0.2 F, and comm = 0 in at least a quarter
   of the cases. The place of each cost in its range is random: a multiple of 1e-6 of the range, or of 0.1. */
static Costs random_costs(uint64_t *seed)
{
    const uint64_t steps = random_below(seed, 2) ? 10 : 1000000;
    Costs costs = costs_unit;
    const double input = 1 + 0.5 * fraction(seed, steps), weight = input * fraction(seed, steps);
    const double backward = input + weight, shortest = backward > 1 ? backward : 1;
    costs.all[COST_I] = input;
    costs.all[COST_W] = weight;
    costs.all[COST_FB] = shortest + (1 + backward - shortest) * (1e-6 + (1 - 1e-6) * fraction(seed, steps));
    costs.latency = random_below(seed, 4) ? 0.2 * fraction(seed, steps) : 0;
    return costs;
}

static Result result_of(const char *path, int64_t ranks, int64_t microbatches, const Costs *costs)
{
    Arena arena = {0};
    Compilation c;
    Timeline times;
    assert_true(compiled_for(path, ranks, microbatches, costs, &arena, &c));
    assert_true(timeline_run(&c.schedule, &c.table, &c.resolved, &arena, &times));
    Result result = {.makespan = times.makespan};
    for (uint32_t r = 0; r < c.schedule.ranks; r++)
        if (c.program->ranks[r].peak_activations > result.peak)
            result.peak = c.program->ranks[r].peak_activations;
    arena_free(&arena);
    return result;
}

static void never_longer(const char *found, const char *published, bool halves, double least_gain)
{
    uint64_t seed = 7, shorter = 0;
    double ratios = 0, best = 1;
    for (uint64_t i = 0; i < cases; i++) {
        const int64_t step = halves ? 2 : 1;
        const int64_t ranks = step * (1 + (int64_t)random_below(&seed, i % 8 ? 10 : 24));
        const int64_t microbatches = step * (1 + (int64_t)random_below(&seed, 4 * (uint64_t)ranks));
        const Costs costs = random_costs(&seed);
        const Result ours = result_of(found, ranks, microbatches, &costs),
                     theirs = result_of(published, ranks, microbatches, &costs);
        if (ours.makespan > theirs.makespan * (1 + 1e-12) || ours.peak > theirs.peak)
            fail_msg("%s, %lld ranks, %lld microbatches, F=1,I=%.17g,W=%.17g,FB=%.17g,comm=%.17g: %.9g, peak %u; %s: "
                     "%.9g, peak %u",
                     found, (long long)ranks, (long long)microbatches, costs.all[COST_I], costs.all[COST_W],
                     costs.all[COST_FB], costs.latency, ours.makespan, ours.peak, published, theirs.makespan,
                     theirs.peak);
        const double ratio = ours.makespan / theirs.makespan;
        shorter += ratio < 1 - 1e-9;
        ratios += ratio;
        best = ratio < best ? ratio : best;
    }
    const double mean = 1 - ratios / (double)cases;
    printf("%s, %llu random cases: shorter than %s in %.0f %%, never longer; by %.2f %% in the mean, %.2f %% at most\n",
           found, (unsigned long long)cases, published, 100 * (double)shorter / (double)cases, 100 * mean,
           100 * (1 - best));
    assert_true(mean > least_gain);
}

TEST(v) { never_longer("schedules/ebb-v.dps", "schedules/dualpipev.dps", false, 0.002); }

TEST(two_directions) { never_longer("schedules/ebb-two.dps", "schedules/dualpipe.dps", true, 0.002); }

TEST(loops) { never_longer("schedules/ebb-loop.dps", "schedules/megatron-moe.dps", false, 0.01); }

TEST(half_of_the_memory) { never_longer("schedules/half-tide.dps", "schedules/v-half.dps", false, 0.01); }

int main(int argc, char **argv)
{
    if (argc > 1)
        cases = strtoull(argv[1], NULL, 10);
    return test_program("discovered", NULL, NULL);
}
