/* `order auto` where ranks hold different numbers of stages and passes: random placements, pipes, times, recipes, units
   and limits of memory, from the text of a file to the verified program. Every order passes all proofs, keeps within
   its memory and takes the time that the search reports; no bound is above it. Where a solver proves the optimum, the
   search is not below it. The environment variables SEARCH_CASES and SEARCH_SEED set the number of cases and the first
   random number; of every 1000 cases one is searched to the end. */

#include "compiler/schedule/bound.h"
#include "compiler/search/optimum.h"
#include "compiler/search/solver.h"
#include "tests/timeline/random_costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, PIPES = 2, STAGES = 9 };

/* A file with a random placement, and what is random beside it. */
typedef struct Case {
    uint32_t ranks, stages;
    int64_t input, weight, memory[RANKS]; /* of a microbatch on a stage; of each rank */
    bool overlap, recipes;                /* recipes: the F&Bs have recipes, of certain chunks too, that put W off */
    char text[4096];
} Case;

static uint64_t seed = 1;
static uint32_t below(uint32_t limit) { return (uint32_t)random_below(&seed, limit); }

/* One pipe, or two whose microbatches differ and whose copies of a stage are on different ranks. Every rank has a
   stage, and most placements give ranks different numbers of them. The limit of each rank is the least that works, or
   more. */
static void random_case(Case *of)
{
    uint32_t held[RANKS][PIPES] = {{0}}, rank[STAGES];
    *of = (Case){.ranks = 1 + below(RANKS), .overlap = below(3)};
    const uint32_t pipes = of->ranks > 1 ? 1 + below(PIPES) : 1;
    of->stages = of->ranks + below(STAGES - of->ranks + 1);
    of->recipes = of->overlap && of->stages > of->ranks && !below(3);
    of->input = below(3);
    of->weight = of->input ? below(3) : 1;
    FILE *file = fmemopen(of->text, sizeof of->text, "w");
    const uint32_t microbatches[PIPES] = {1 + below(7), 1 + below(4)};
    fprintf(file, "schedule unequal;\nranks P = %u;\nmicrobatches M = %u;\n", of->ranks,
            microbatches[0] + (pipes > 1 ? microbatches[1] : 0));
    for (uint32_t p = 0; p < pipes; p++) {
        const uint32_t turn = below(of->stages);
        for (uint32_t s = 0; s < of->stages; s++) {
            const uint32_t at = (s + turn) % of->stages;
            rank[s] = p ? (rank[s] + 1 + below(of->ranks - 1)) % of->ranks : at < of->ranks ? at : below(of->ranks);
        }
        fprintf(file, "pipe p%u: %u stages, stage s on ", p, of->stages);
        for (uint32_t s = 0; s < of->stages; s++) {
            held[rank[s]][p]++;
            fprintf(file, "s == %u ? %u : ", s, rank[s]);
        }
        fprintf(file, "0, %u microbatches;\n", microbatches[p]);
    }
    if (of->recipes)
        fputs("overlap F&B { compute: attention(F) mlp(B) mlp(W) mlp(F) attention(B);\n"
              "    comm: combine(B) dispatch(F) dispatch(B) combine(F); after: attention(W); }\n"
              "overlap F0&B1 { compute: mlp(B) mlp(F) mlp(W); }\n",
              file);
    fprintf(file, "order auto(input = %d, weight = %d, memory = ", (int)of->input, (int)of->weight);
    for (uint32_t r = 0; r < of->ranks; r++) {
        const uint32_t least = held[r][0] > held[r][1] ? held[r][0] : held[r][1];
        of->memory[r] = (of->input + of->weight) * least + (below(3) ? below(12) : 0);
        fprintf(file, "r == %u ? %d : ", r, (int)of->memory[r]);
    }
    fprintf(file, "0%s);\n", of->overlap ? ", overlap" : "");
    fclose(file);
}

/* The times of the components, if F&Bs have recipes; else those of the passes. */
static Costs costs_of(const Case *of, Arena *arena)
{
    static const char *const parts[] = {"attention.F", "attention.B", "attention.W", "mlp.F",     "mlp.B",
                                        "mlp.W",       "dispatch.F",  "dispatch.B",  "combine.F", "combine.B"};
    Costs costs = costs_unit;
    Error error = {""};
    for (size_t i = 0; of->recipes && i < sizeof parts / sizeof *parts; i++)
        assert_int_equal(
            costs_set(&costs, arena_format(arena, "%s=%u,layers=2", parts[i], 1 + below(9)), arena, &error), STATUS_OK);
    return of->recipes ? costs : random_costs(&seed, of->stages, arena);
}

static atomic_int stop;

/* Ends the search when it reports this many orders. */
static void stop_soon(void *context, const SearchProgress *progress)
{
    stop = stop || progress->tried >= *(const uint32_t *)context;
}

static void wrong(const Case *of, const char *what, double value, double bound)
{
    fail_msg("%s: %.12g, %.12g\n%s", what, value, bound, of->text);
}

static void check_no_less(const Case *of, const char *what, double value, double bound)
{
    if (!(value >= bound - 1e-6 * fabs(bound)))
        wrong(of, what, value, bound);
}

static void check_memory(const Case *of, const Schedule *schedule)
{
    for (uint32_t r = 0; r < of->ranks; r++) {
        int64_t held = 0;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const int64_t changes[ACTION_KINDS] = {[ACTION_F] = of->input + of->weight,
                                                   [ACTION_B] = -of->input - of->weight,
                                                   [ACTION_I] = -of->input,
                                                   [ACTION_W] = -of->weight};
            const Action *action = &schedule->orders[r].actions[i];
            /* the backward of an F&B frees its memory before the forward takes any */
            if (!action->overlap)
                held += changes[action->kind] + (i && action[-1].overlap ? changes[ACTION_F] : 0);
            check_no_less(of, "memory", (double)of->memory[r], (double)held);
        }
    }
}

/* The cost that the search minimizes: with F&Bs the makespan, else the longest time of a rank from start to end. */
static double cost_of(const Case *of, const Compilation *c, const Timeline *times)
{
    double longest = 0;
    for (uint32_t r = 0; r < of->ranks; r++) {
        const RankTimes rank = timeline_rank(&c->schedule, times, r);
        longest = fmax(longest, rank.end - rank.start);
    }
    return of->overlap ? times->makespan : longest;
}

/* Asks the solver for the optimum of a small case. Returns whether it answered. */
static bool check_optimum(const Case *of, const Compilation *c, double makespan, double bound)
{
    const OptimumControl control = {.seconds = 1};
    const OptimumTask task = {
        .schedule = &c->schedule, .costs = &c->resolved, .limits = &c->limits, .limit_count = 1, .overlap = true};
    const Optimum found = optimum_find(&task, makespan * 1.001, bound, &control, (Span){0, 0}, c->arena);
    check_no_less(of, "makespan below the optimum", makespan, found.bound);
    check_no_less(of, "optimum below the bound", found.bound, bound);
    return !found.too_large && found.bound >= makespan * (1 - 1e-6);
}

static bool run(const Case *of, uint32_t tried)
{
    Arena arena = {0};
    Source source;
    const Parameters none = {0};
    const SearchControl control = {&stop, stop_soon, &tried};
    const Costs costs = costs_of(of, &arena);
    Error error = {""};
    Timeline times;
    stop = tried == 0;
    const size_t length = strlen(of->text);
    char *text = arena_text(&arena, of->text, length);
    assert_int_equal(source_of_text("unequal.dps", text, length, &arena, &source, &error), STATUS_OK);
    Compilation c = {.arena = &arena, .source = &source, .parameters = &none, .costs = &costs, .search = &control};
    if (compile(&c, &error) != STATUS_OK) {
        diag_print(c.diagnostics, stderr);
        fail_msg("refused: %s\n%s", error.text, of->text);
    }
    assert_true(timeline_run(&c.schedule, &c.table, &c.resolved, &arena, &times));
    const double cost = cost_of(of, &c, &times);
    if (fabs(cost - c.found.cost) > 1e-6 * cost)
        wrong(of, "another cost than the search reports", cost, c.found.cost);
    check_memory(of, &c.schedule);
    const double bound = makespan_bound(&c.schedule, &c.resolved, &c.limits, &arena);
    check_no_less(of, "cost below the bound of the search", cost, c.found.bound);
    check_no_less(of, "makespan below the bound", times.makespan, bound);
    check_no_less(of, "makespan below the bound of its memory", times.makespan,
                  compilation_gap(&c, times.makespan).bound);
    const bool small = !of->recipes && of->stages * c.schedule.microbatches <= 12 && solver_exists();
    const bool proven = small && below(8) == 0 && check_optimum(of, &c, times.makespan, bound);
    arena_free(&arena);
    return proven;
}

TEST(every_order_is_legal_and_no_shorter_than_its_bounds)
{
    const char *count = getenv("SEARCH_CASES"), *first = getenv("SEARCH_SEED");
    const uint32_t cases = count ? (uint32_t)strtoul(count, NULL, 10) : 60;
    seed = first ? strtoul(first, NULL, 10) : 1;
    uint32_t proven = 0;
    for (uint32_t i = 0; i < cases; i++) {
        Case of;
        random_case(&of);
        const uint32_t orders = below(4) ? of.overlap ? 1024 : 100 : 0;
        proven += run(&of, i % 1000 == 999 ? UINT32_MAX : orders);
    }
    print_message("%u cases; %u orders are proven optimal\n", cases, proven);
}

int main(void) { return test_program("unequal", NULL, NULL); }
