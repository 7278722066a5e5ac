/* Tests the solver behind dpc --prove on small cases: the search is near the proven optimum, the bound is never above
   it, and orders that the solver finds are legal and take the time that it says. */

#include "compiler/prove/prove.h"
#include "compiler/search/optimum.h"
#include "compiler/search/search.h"
#include "compiler/search/solver.h"
#include "tests/sanitized.h"
#include "tests/search/costs_of.h"
#include "tests/search/placement.h"
#include "tests/test.h"
#include "tests/timeline/compiled.h"

#include <math.h>
#include <stdlib.h>

typedef struct Case {
    const char *name;
    uint32_t ranks, chunks;
    bool waves;
    uint32_t microbatches;
    int forward, input, weight, message; /* times */
    int head;                            /* additional time of an F of the last stage */
    int frees_input, frees_weight;       /* memory of a microbatch that I and W free */
    int memory;
    int gap; /* the most by which the search's result exceeds the optimum; a measured figure */
} Case;

/* A placement with its costs and the memory of every rank. */
typedef struct Problem {
    Schedule schedule;
    Costs costs;
    MemoryLimits limits;
    int64_t *memory; /* [ranks] */
} Problem;

static Problem problem_of(const Case *of, Arena *arena)
{
    const uint32_t stages = of->ranks * of->chunks;
    Problem problem = {.costs = costs_of(of->forward, of->input, of->weight, of->message)};
    double *most = arena_array(arena, of->ranks, sizeof *most);
    problem.memory = arena_array(arena, of->ranks, sizeof *problem.memory);
    problem.costs.stage_count = stages;
    problem.costs.stages = arena_array(arena, stages, sizeof *problem.costs.stages);
    for (uint32_t s = 0; s < stages; s++)
        for (StageCost kind = 0; kind < STAGE_COSTS; kind++)
            problem.costs.stages[s][kind] = -1;
    problem.costs.stages[stages - 1][COST_F] = of->forward + of->head;
    for (uint32_t r = 0; r < of->ranks; r++)
        most[r] = (double)(problem.memory[r] = of->memory);
    problem.limits = (MemoryLimits){of->frees_input, of->frees_weight, most};
    placement_usual(arena, of->ranks, of->chunks, of->waves, 1, of->microbatches, &problem.schedule);
    return problem;
}

/* The earliest time at which each rank can start its first F. */
static const double *starts_of(const Problem *problem, Arena *arena)
{
    const PlacedPipe *pipe = &problem->schedule.pipes[0];
    double *starts = arena_array(arena, problem->schedule.ranks, sizeof *starts), time = 0;
    for (uint32_t s = 0; s < problem->schedule.ranks; s++) {
        const uint32_t rank = pipe->homes[s].rank;
        time += s ? costs_message(&problem->costs, pipe->homes[s - 1].rank, rank) : 0;
        starts[rank] = time;
        time += costs_pass(&problem->costs, s, COST_F);
    }
    return starts;
}

/* Returns the makespan that the solver proves to be the least. `known`: at least the makespan of some order; the solver
   looks for a shorter one. */
static double optimum(const OptimumTask *task, double known, Optimum *found, Arena *arena)
{
    static const OptimumControl control = {.seconds = 600};
    *found = optimum_find(task, known, 0, &control, (Span){0, 0}, arena);
    return found->bound;
}

static double search_cost(const Case *of, Problem *problem, Arena *arena)
{
    const SearchTask task = {.costs = &problem->costs,
                             .forward = of->frees_input + of->frees_weight,
                             .input = -of->frees_input,
                             .weight = -of->frees_weight,
                             .memory = problem->memory,
                             .effort = 1};
    SearchProgress found;
    search_order(&problem->schedule, &task, NULL, (Span){0, 0}, arena, &found);
    assert_true(found.bound <= found.cost);
    return found.cost;
}

static const Case examples[] = {
    {"2 ranks", 2, 1, false, 4, 1, 1, 1, 0, 0, 1, 1, 4, 0},
    {"3 ranks, memory of 1F1B", 3, 1, false, 5, 1, 1, 1, 0, 0, 1, 1, 6, 0},
    {"4 ranks, memory of 1F1B", 4, 1, false, 6, 1, 1, 1, 0, 0, 1, 1, 8, 0},
    {"4 ranks, little more", 4, 1, false, 6, 1, 1, 1, 0, 0, 1, 1, 9, 0},
    {"4 ranks, half as much again", 4, 1, false, 6, 2, 3, 2, 0, 0, 1, 1, 11, 0},
    {"4 ranks, less", 4, 1, false, 6, 2, 2, 1, 1, 0, 1, 1, 5, 0},
    {"4 ranks, messages", 4, 1, false, 5, 3, 4, 2, 1, 0, 1, 1, 10, 0},
    {"4 ranks, longer", 4, 1, false, 10, 3, 3, 2, 0, 0, 1, 1, 11, 0},
    {"5 ranks, memory of 1F1B", 5, 1, false, 8, 1, 1, 1, 0, 0, 1, 1, 10, 0},
    {"5 ranks, odd times", 5, 1, false, 7, 4, 1, 3, 0, 0, 1, 1, 10, 1},
    {"6 ranks, half as much again", 6, 1, false, 9, 1, 1, 1, 0, 0, 1, 1, 18, 0},
    {"6 ranks, messages", 6, 1, false, 8, 3, 4, 2, 1, 0, 1, 1, 18, 0},
    {"8 ranks, memory of 1F1B", 8, 1, false, 10, 1, 1, 1, 0, 0, 1, 1, 16, 0},
    {"8 ranks, half as much again", 8, 1, false, 12, 1, 1, 1, 0, 0, 1, 1, 24, 0},
    {"3 ranks, activations until W", 3, 1, false, 6, 1, 2, 1, 0, 0, 0, 1, 3, 0},
    {"V of 2 ranks", 2, 2, true, 4, 1, 1, 1, 0, 0, 1, 1, 6, 0},
    {"V of 2 ranks, little memory", 2, 2, true, 4, 1, 1, 1, 0, 0, 0, 1, 2, 0},
    {"V of 3 ranks", 3, 2, true, 4, 1, 1, 1, 0, 0, 0, 1, 4, 0},
    {"V of 3 ranks, memory of V-Half", 3, 2, true, 6, 1, 1, 1, 0, 0, 0, 1, 4, 0},
    {"V of 3 ranks, memory of 1F1B", 3, 2, true, 5, 2, 2, 1, 1, 0, 1, 1, 12, 0},
    {"V of 4 ranks, memory of V-Min", 4, 2, true, 6, 1, 1, 1, 0, 0, 0, 1, 4, 0},
    {"V of 4 ranks, memory of V-Half", 4, 2, true, 4, 1, 1, 1, 0, 0, 0, 1, 6, 0},
    {"V of 4 ranks, memory of 1F1B", 4, 2, true, 5, 1, 1, 1, 0, 0, 1, 1, 16, 0},
    {"V of 3 ranks, unequal times", 3, 2, true, 4, 2, 3, 1, 0, 0, 1, 1, 8, 0},
    {"V of 3 ranks, short backwards", 3, 2, true, 3, 2, 1, 1, 1, 0, 1, 1, 7, 1},
    {"loop of 2 ranks", 2, 2, false, 4, 2, 2, 1, 1, 0, 1, 1, 7, 0},
    {"loop of 3 ranks", 3, 2, false, 4, 2, 3, 1, 0, 0, 1, 1, 10, 0},
    {"two waves of 2 ranks", 2, 4, true, 3, 1, 1, 1, 0, 0, 1, 1, 10, 0},
    {"3 ranks, the last stage with a head", 3, 1, false, 5, 2, 2, 1, 0, 1, 1, 1, 7, 0},
    {"V of 2 ranks, the last stage with a head", 2, 2, true, 4, 2, 3, 2, 1, 3, 1, 1, 7, 2},
};

TEST(near_the_optimum)
{
    enum { CASES = sizeof examples / sizeof *examples };
    int reached = 0;
    double most = 0, sum = 0;
    for (size_t i = 0; i < CASES; i++) {
        Arena arena = {0};
        const Case *of = &examples[i];
        Problem problem = problem_of(of, &arena);
        const double cost = search_cost(of, &problem, &arena);
        const OptimumTask task = {.schedule = &problem.schedule,
                                  .costs = &problem.costs,
                                  .limits = &problem.limits,
                                  .limit_count = 1,
                                  .starts = starts_of(&problem, &arena)};
        Optimum found;
        /* cost + 1: the solver must find an order as good as that of the search; otherwise its model is too strict */
        const double least = optimum(&task, cost + 1, &found, &arena);
        assert_true(found.found);
        print_message("%s, %u microbatches, F=%d I=%d W=%d comm=%d head=%d, memory %d: %g, proven optimum %g\n",
                      of->name, of->microbatches, of->forward, of->input, of->weight, of->message, of->head, of->memory,
                      cost, least);
        assert_true(cost >= least - 1e-6 && cost <= least + of->gap + 1e-6);
        reached += cost < least + 1e-6;
        sum += 100 * (cost - least) / least;
        most = fmax(most, 100 * (cost - least) / least);
        arena_free(&arena);
    }
    print_message("the optimum in %d of %d cases; above it by %.2f %% on average, %.2f %% at most\n", reached, CASES,
                  sum / CASES, most);
}

/* --- with F&B --- */

static Costs costs_with(double forward, double input, double weight, double message, double pair)
{
    Costs costs = costs_of(forward, input, weight, message);
    costs.all[COST_FB] = pair;
    return costs;
}

static SearchProgress search_pairs_of(const Problem *problem, Schedule *schedule, Arena *arena)
{
    const SearchTask task = {
        .costs = &problem->costs, .forward = 1, .weight = -1, .memory = problem->memory, .effort = 1, .overlap = true};
    SearchProgress found;
    *schedule = problem->schedule;
    schedule->orders = arena_array(arena, schedule->ranks, sizeof *schedule->orders);
    search_order(schedule, &task, NULL, (Span){0, 0}, arena, &found);
    return found;
}

/* Checks that the solver's order is legal and can run, and that no rank holds more activations than its memory has room
   for. Returns the makespan of the order. */
static double makespan_of(const Problem *problem, Order *orders, Arena *arena)
{
    static const Source source = {.path = "solver", .text = ""};
    Schedule schedule = problem->schedule;
    PassTable table;
    Timeline times;
    schedule.orders = orders;
    assert_true(prove_passes(&schedule, arena, diag_new(arena, &source), &table));
    assert_true(timeline_run(&schedule, &table, &problem->costs, arena, &times));
    const MemoryLimits own = limits_of_orders(&schedule, arena);
    for (uint32_t r = 0; r < schedule.ranks; r++)
        assert_true(own.most[r] <= problem->limits.most[r]);
    return times.makespan;
}

/* Checks that the search finds the makespan that the solver proves to be the least. Returns this makespan. */
static double compare_pairs(const Problem *problem, Arena *arena)
{
    Schedule schedule;
    const SearchProgress progress = search_pairs_of(problem, &schedule, arena);
    const OptimumTask task = {.schedule = &problem->schedule,
                              .costs = &problem->costs,
                              .limits = &problem->limits,
                              .limit_count = 1,
                              .overlap = true};
    Optimum found;
    const double least = optimum(&task, progress.cost * 1.02, &found, arena);
    assert_true(found.found);
    assert_true(progress.bound <= least + 1e-6);
    assert_true(fabs(makespan_of(problem, found.orders, arena) - least) <= 1e-6);
    print_message("%u ranks, %u microbatches, F=%g I=%g W=%g comm=%g FB=%g, memory %g: %g, proven optimum %g\n",
                  problem->schedule.ranks, problem->schedule.microbatches, problem->costs.all[COST_F],
                  problem->costs.all[COST_I], problem->costs.all[COST_W], problem->costs.latency,
                  problem->costs.all[COST_FB], problem->limits.most[0], progress.cost, least);
    assert_true(fabs(progress.cost - least) <= 1e-6);
    return least;
}

static Problem pairs_problem(uint32_t ranks, uint32_t pipes, uint32_t microbatches, int64_t memory, Costs costs,
                             Arena *arena)
{
    const Case of = {.ranks = ranks, .chunks = 2 / pipes, .waves = pipes == 1, .frees_weight = 1};
    Problem problem = {.costs = costs};
    double *most = arena_array(arena, ranks, sizeof *most);
    problem.memory = arena_array(arena, ranks, sizeof *problem.memory);
    for (uint32_t r = 0; r < ranks; r++)
        most[r] = (double)(problem.memory[r] = memory);
    problem.limits = (MemoryLimits){0, 1, most};
    placement_usual(arena, ranks, of.chunks, of.waves, pipes, microbatches, &problem.schedule);
    return problem;
}

/* The V with the memory of DualPipeV, and two pipes in opposite directions with that of DualPipe. */
TEST(optima_with_pairs)
{
    static const struct {
        uint32_t ranks, pipes, microbatches;
        int64_t memory;
        double input, weight, message, pair, least;
    } known[] = {
        {2, 1, 4, 5, 1, 1, 0, 2.4, 23.0},       {2, 1, 4, 5, 1, 1, 0, 2.1, 21.5},  {2, 1, 4, 5, 1.2, 0.8, 0, 2.4, 0},
        {2, 1, 4, 5, 1.2, 0.8, 0.1, 2.4, 23.6}, {2, 1, 3, 5, 1.2, 0.8, 0, 2.1, 0}, {2, 2, 2, 3, 1, 1, 0, 2.4, 0},
        {2, 2, 4, 3, 1.2, 0.8, 0.1, 2.4, 0},    {3, 1, 3, 7, 1, 1, 0, 2.4, 20},    {3, 1, 4, 7, 1, 1, 0, 2.1, 24.3},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        Arena arena = {0};
        const Problem problem =
            pairs_problem(known[i].ranks, known[i].pipes, known[i].microbatches, known[i].memory,
                          costs_with(1, known[i].input, known[i].weight, known[i].message, known[i].pair), &arena);
        const double least = compare_pairs(&problem, &arena);
        if (known[i].least > 0)
            assert_true(fabs(least - known[i].least) <= 1e-6);
        arena_free(&arena);
    }
}

/* For small random placements, times and limits, the bound is never above the optimum, and the search reaches the
   optimum. In some cases a B takes less time than an I and a W. */
TEST(random_problems)
{
    enum { CASES = SANITIZED ? 8 : 40 };
    uint64_t seed = 1;
    uint32_t reached = 0;
    for (int i = 0; i < CASES; i++) {
        Arena arena = {0};
        const uint32_t ranks = 1 + (uint32_t)random_below(&seed, 3),
                       pipes = ranks == 2 ? 1 + (uint32_t)random_below(&seed, 2) : 1;
        const double forward = 1 + (double)random_below(&seed, 3), input = 1 + (double)random_below(&seed, 3);
        const double weight = 1 + (double)random_below(&seed, 3), message = (double)random_below(&seed, 2);
        const double longer = fmax(forward, input + weight), turn = forward + input + weight;
        const double pair = longer + (double)random_below(&seed, (uint64_t)(turn - longer) + 1);
        Costs costs = costs_with(forward, input, weight, message, pair);
        if (random_below(&seed, 3) == 0)
            costs.all[COST_B] = input + weight - 0.5;
        const Problem problem = pairs_problem(ranks, pipes, 1 + (uint32_t)random_below(&seed, ranks < 3 ? 4 : 2),
                                              2 + (int64_t)random_below(&seed, 4), costs, &arena);
        const double bound = makespan_bound(&problem.schedule, &costs, &problem.limits, &arena);
        const double least = compare_pairs(&problem, &arena);
        assert_true(bound <= least + 1e-6);
        reached += bound >= least - 1e-6;
        arena_free(&arena);
    }
    print_message("the bound is the optimum in %u of %d cases\n", reached, CASES);
    assert_true(reached > CASES / 4);
}

int main(void)
{
    if (!solver_exists())
        print_message("CaDiCaL is not installed: nothing is compared with proven optima\n");
    return solver_exists() ? test_program("optimum", NULL, NULL) : 0;
}
