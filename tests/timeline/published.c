/* Published formulas of bubbles, with random times and many sizes. In its domain each formula is exact, or a lower
   bound if it is published as one; outside of it the timeline differs in at least 20 cases. */

#include "study/trials/published.h"
#include "tests/search/costs_of.h"
#include "tests/timeline/compiled.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TIMES = 24 };

typedef struct Count {
    uint32_t holds, outside, differs; /* cases in the domain; outside of it; outside and with another bubble */
} Count;

static Costs random_times(uint64_t *seed, int round)
{
    double forward = 1.0 + (double)random_below(seed, 6), input = 1.0 + (double)random_below(seed, 6);
    double weight = 1.0 + (double)random_below(seed, 6);
    if (round % 3 == 0)
        input = forward;
    if (round % 6 == 0)
        weight = forward;
    Costs costs = costs_of(forward, input, weight, 0);
    if (round % 5 == 1)
        costs.all[COST_B] = forward;
    if (round % 5 == 2)
        costs.all[COST_FB] = floor((forward + input + weight) * 0.75);
    if (round % 8 == 7)
        costs.latency = 1;
    return costs;
}

static void hold(const Compilation *c, const Costs *costs, Count *count)
{
    Arena scratch = {0};
    Timeline times;
    PublishedBubble published;
    uint32_t peak = 0;
    for (uint32_t r = 0; r < c->schedule.ranks; r++)
        peak = c->program->ranks[r].peak_activations > peak ? c->program->ranks[r].peak_activations : peak;
    assert_true(timeline_run(&c->schedule, &c->table, costs, &scratch, &times));
    const Bubble bubble = timeline_bubble(&c->schedule, &times);
    assert_true(published_bubble(&c->schedule, costs, peak, &published));
    const double above = bubble.cost - bubble.work - published.value;
    const bool same = published.is_bound ? above > -1e-9 : fabs(above) < 1e-9;
    if (!*published.breach && !same)
        fail_msg("%s: %u ranks, %u microbatches, F=%g I=%g W=%g: %g, published %s = %g", c->schedule.name,
                 c->schedule.ranks, c->schedule.microbatches, costs_pass(costs, 0, COST_F),
                 costs_pass(costs, 0, COST_I), costs_pass(costs, 0, COST_W), bubble.cost - bubble.work,
                 published.formula, published.value);
    if (*published.breach)
        count->outside++;
    else
        count->holds++;
    count->differs += *published.breach && !same;
    arena_free(&scratch);
}

TEST(test_domains)
{
    static const char *const names[] = {
        "gpipe", "1f1b",   "eager-1f1b", "interleaved-1f1b", "looped-bfs", "hanayo",   "zb-h1",    "zb-h2",
        "zb-v",  "v-half", "v-min",      "chimera",          "bitpipe",    "dualpipe", "dualpipev"};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Count count = {0, 0, 0};
        char path[100];
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        for (int64_t ranks = 2; ranks <= 8; ranks++)
            for (int64_t microbatches = 1; microbatches <= 20; microbatches += 1 + (int64_t)random_below(&seed, 2)) {
                Arena arena = {0};
                Compilation c;
                const bool good = compiled(path, ranks, microbatches, &arena, &c);
                for (int round = 0; good && round < TIMES; round++) {
                    const Costs costs = random_times(&seed, round);
                    hold(&c, &costs, &count);
                }
                arena_free(&arena);
            }
        print_message("%s: holds %u times; outside %u, differs in %u of them\n", names[i], count.holds, count.outside,
                      count.differs);
        assert_true(count.holds >= 20 && count.differs >= 20);
    }
}

int main(void) { return test_program("published", NULL, NULL); }
