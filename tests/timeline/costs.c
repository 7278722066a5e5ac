/* Every pass starts as soon as its rank is free and its inputs have arrived, and takes the time of the costs of its
   stage. The critical path has no gap. The peak memory is that of the papers. */

#include "compiler/schedule/critical_path.h"
#include "compiler/schedule/rank_load.h"
#include "tests/timeline/compiled.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *path;
    int64_t ranks, microbatches;
} cases[] = {
    {"schedules/1f1b.dps", 5, 9},           {"schedules/interleaved-1f1b.dps", 4, 8},
    {"schedules/interleaved-zb.dps", 4, 8}, {"schedules/zb-h2.dps", 4, 9},
    {"schedules/zb-v.dps", 4, 9},           {"schedules/v-half.dps", 4, 8},
    {"schedules/chimera.dps", 4, 8},        {"schedules/bitpipe.dps", 4, 8},
    {"schedules/hanayo.dps", 4, 8},         {"schedules/dualpipe.dps", 6, 14},
    {"schedules/dualpipev.dps", 3, 8},      {"schedules/1f1b-rr.dps", 5, 9},
    {"schedules/pipedream.dps", 4, 9},      {"schedules/pipedream-2bw.dps", 4, 8},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Random costs: some for all, some for single stages or links; in quarters, so that sums are exact. */
static Costs random_costs(uint64_t *seed, const Schedule *schedule, Arena *arena)
{
    static const char *const names[] = {"F", "I", "W", "B", "FB", "U", "comm", "bandwidth"};
    enum { NAMES = sizeof names / sizeof *names, LINKS = 6 };
    Costs costs = costs_unit;
    costs.bytes = 1;
    for (uint64_t n = random_below(seed, 40) + 1; n > 0; n--) {
        const size_t i = random_below(seed, NAMES);
        const bool link = i >= LINKS, one = random_below(seed, 3) > 0;
        char text[100], index[60] = "";
        const unsigned from = (unsigned)random_below(seed, schedule->ranks);
        if (one && link)
            snprintf(index, sizeof index, "[%u->%u]", from,
                     (from + 1 + (unsigned)random_below(seed, schedule->ranks - 1)) % schedule->ranks);
        else if (one)
            snprintf(index, sizeof index, "[%u]", (unsigned)random_below(seed, schedule->pipes[0].stages));
        const double value = i == NAMES - 1 ? 0.5 : (double)random_below(seed, 40) / 4;
        snprintf(text, sizeof text, "%s%s=%g", names[i], index, value);
        Error error;
        assert_int_equal(costs_set(&costs, text, arena, &error), STATUS_OK);
    }
    return costs;
}

static void check_pass(const Compilation *c, const Timeline *times, uint32_t rank, uint32_t first, uint32_t second,
                       double free_at)
{
    const Action *actions = c->schedule.orders[rank].actions;
    double ready = free_at;
    for (uint32_t i = first; i <= second; i++) {
        Dependence needed;
        if (!pass_dependence(&c->schedule, &c->table, &actions[i], &needed))
            continue;
        const double arrival =
            times->end[needed.rank][needed.position] + costs_message(times->costs, needed.rank, rank);
        ready = arrival > ready ? arrival : ready;
        assert_true(times->start[rank][i] == times->start[rank][first] &&
                    times->end[rank][i] == times->end[rank][first]);
    }
    const double takes =
        second > first
            ? costs_pair(times->costs, actions[first].stage, actions[second].stage, (StageCost)actions[second].kind)
            : costs_pass(times->costs, actions[first].stage, (StageCost)actions[first].kind);
    assert_true(times->start[rank][first] == ready);
    assert_true(times->end[rank][first] == ready + takes);
}

static void check_timeline(const Compilation *c, const Timeline *times)
{
    double last = 0;
    for (uint32_t r = 0; r < c->schedule.ranks; r++) {
        const Order *order = &c->schedule.orders[r];
        double free_at = 0, busy = 0;
        for (uint32_t i = 0; i < order->count; i++) {
            if (action_is_message(&order->actions[i]))
                continue;
            const uint32_t first = i;
            i += order->actions[i].overlap;
            check_pass(c, times, r, first, i, free_at);
            free_at = times->end[r][i];
            busy += free_at - times->start[r][i];
        }
        assert_true(timeline_rank(&c->schedule, times, r).end == free_at);
        assert_true(timeline_rank(&c->schedule, times, r).busy == busy);
        last = free_at > last ? free_at : last;
    }
    assert_true(times->makespan == last);
}

static void check_critical_path(const Compilation *c, const Timeline *times, Arena *arena)
{
    CriticalPass *path;
    const uint32_t count = critical_path(&c->schedule, &c->table, times, arena, &path);
    double clock = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i && path[i].rank != path[i - 1].rank)
            clock += costs_message(times->costs, path[i - 1].rank, path[i].rank);
        assert_true(times->start[path[i].rank][path[i].position] == clock);
        clock = times->end[path[i].rank][path[i].position];
    }
    assert_true(clock == times->makespan);
}

/* If messages take no time, imbalance and order add up to the bubble. The share of messages is the makespan with their
   times less the makespan without. */
static void check_causes(const Compilation *c, const Timeline *times, Arena *arena)
{
    Costs costs = *times->costs;
    Timeline quiet;
    double work = 0, largest = 0;
    costs.latency = costs.bytes = 0; /* without bytes, messages take no time on links with a bandwidth either */
    for (uint32_t i = 0; i < costs.link_count; i++)
        costs.links[i].latency = 0;
    assert_true(timeline_run(&c->schedule, &c->table, &costs, arena, &quiet));
    for (uint32_t r = 0; r < c->schedule.ranks; r++) {
        const double busy = timeline_rank(&c->schedule, times, r).busy;
        work += busy / c->schedule.ranks;
        largest = busy > largest ? busy : largest;
    }
    const Bubble bubble = timeline_bubble(&c->schedule, &quiet);
    const BubbleCauses causes = timeline_bubble_causes(&c->schedule, &c->table, times, arena);
    assert_true(fabs(causes.imbalance * bubble.cost - (largest - work)) < 1e-9);
    assert_true(fabs(causes.order * bubble.cost - (bubble.cost - largest)) < 1e-9 && causes.order >= 0);
    assert_true(fabs(causes.imbalance + causes.order - bubble.rate) < 1e-9);
    assert_true(causes.messages == times->makespan - quiet.makespan && causes.messages >= 0);
}

TEST(test_times)
{
    uint64_t seed = 1;
    for (int i = 0; i < CASES; i++) {
        Arena arena = {0};
        Compilation c;
        assert_true(compiled(cases[i].path, cases[i].ranks, cases[i].microbatches, &arena, &c));
        for (int n = 0; n < 50; n++) {
            Arena scratch = {0};
            const Costs costs = random_costs(&seed, &c.schedule, &scratch);
            Timeline times;
            assert_true(timeline_run(&c.schedule, &c.table, &costs, &scratch, &times));
            check_timeline(&c, &times);
            check_critical_path(&c, &times, &scratch);
            check_causes(&c, &times, &scratch); /* must be last: it changes the costs of links */
            arena_free(&scratch);
        }
        arena_free(&arena);
    }
}

/* A slower F of the last stage does not move the F of other stages, as they do not depend on it. */
TEST(test_one_stage)
{
    Arena arena = {0};
    Compilation c;
    assert_true(compiled("schedules/gpipe.dps", 4, 6, &arena, &c));
    Costs costs = costs_unit;
    Error error;
    Timeline before, after;
    assert_int_equal(costs_set(&costs, "F[3]=3", &arena, &error), STATUS_OK);
    timeline_run(&c.schedule, &c.table, &costs_unit, &arena, &before);
    timeline_run(&c.schedule, &c.table, &costs, &arena, &after);
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t i = 0; i < c.schedule.orders[r].count; i++) {
            const Action *pass = &c.schedule.orders[r].actions[i];
            if (pass->kind == ACTION_F && r < 3)
                assert_true(after.start[r][i] == before.start[r][i] && after.end[r][i] == before.end[r][i]);
            if (pass->kind == ACTION_B) /* each of the six F of stage 3 takes 2 more */
                assert_true(after.start[r][i] == before.start[r][i] + 12 && after.end[r][i] == before.end[r][i] + 12);
        }
    arena_free(&arena);
}

/* Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, table 2. Rank r of p holds, in ZB-H1, p-r times the memory
   for I and r times the memory for W alone; in ZB-H2 2p-2r-1 and 2r times. */
TEST(test_memory)
{
    for (uint32_t p = 2; p <= 9; p++)
        for (int64_t k = 1; k <= 2; k++) {
            Arena arena = {0};
            Compilation c;
            Costs costs = costs_unit;
            Error error;
            assert_true(compiled(k == 1 ? "schedules/zb-h1.dps" : "schedules/zb-h2.dps", p, 3 * p, &arena, &c));
            assert_int_equal(costs_set(&costs, "memory_I=5,memory_W=3,bytes=7", &arena, &error), STATUS_OK);
            for (uint32_t r = 0; r < p; r++) {
                const RankLoad load = rank_load(&c.schedule, &costs, r);
                assert_true(load.peak_memory ==
                            (k == 1 ? 5.0 * (p - r) + 3.0 * r : 5.0 * (2 * p - 2 * r - 1) + 6.0 * r));
                assert_int_equal(load.messages, 3 * p * (r > 0 ? 1u : 0) + 3 * p * (r + 1 < p ? 1u : 0));
                assert_true(load.bytes_sent == 7.0 * (double)load.messages);
            }
            costs.all[COST_MEMORY_W] = 0; /* then only the memory for I remains */
            assert_int_equal(costs_set(&costs, "memory_I[0]=4", &arena, &error), STATUS_OK);
            assert_true(rank_load(&c.schedule, &costs, 0).peak_memory == 4.0 * (k == 1 ? p : 2 * p - 1));
            arena_free(&arena);
        }
}

/* Costs from a 1F1B trace have a B for each stage and neither I nor W: ZB-H1 then takes half of B for each, or
   divides B in the ratio of a stage that has both. If only I and W are given, 1F1B's B is I + W. */
TEST(test_halves)
{
    static const struct {
        const char *path, *given, *same;
    } pairs[] = {
        {"schedules/zb-h1.dps", "F[0]=2,F[1]=3,F[2]=2,F[3]=4,B[0]=5,B[1]=6,B[2]=5,B[3]=8",
         "F[0]=2,F[1]=3,F[2]=2,F[3]=4,I[0]=2.5,I[1]=3,I[2]=2.5,I[3]=4,W[0]=2.5,W[1]=3,W[2]=2.5,W[3]=4"},
        {"schedules/zb-h1.dps", "B[0]=6,B[1]=9,B[2]=6,B[3]=12,I[2]=4,W[2]=2",
         "I[0]=4,I[1]=6,I[2]=4,I[3]=8,W[0]=2,W[1]=3,W[2]=2,W[3]=4"},
        {"schedules/1f1b.dps", "I=2.5,W=1.5,I[3]=4", "B=4,B[3]=5.5"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        Arena arena = {0};
        Compilation c;
        Timeline times[2];
        const char *texts[] = {pairs[i].given, pairs[i].same};
        assert_true(compiled(pairs[i].path, 4, 9, &arena, &c));
        for (int k = 0; k < 2; k++) {
            Costs given = costs_unit, *costs = arena_allocate(&arena, sizeof *costs);
            Error error;
            assert_int_equal(costs_set(&given, texts[k], &arena, &error), STATUS_OK);
            *costs = costs_resolve(&given, 4, NULL, &arena);
            timeline_run(&c.schedule, &c.table, costs, &arena, &times[k]);
        }
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t p = 0; p < c.schedule.orders[r].count; p++)
                if (!action_is_message(&c.schedule.orders[r].actions[p]))
                    assert_true(times[0].start[r][p] == times[1].start[r][p] &&
                                times[0].end[r][p] == times[1].end[r][p]);
        arena_free(&arena);
    }
}

int main(void) { return test_program("costs", NULL, NULL); }
