/* Small changes of the orders of ebb-v and ebb-two, at random sizes and costs: is one of them shorter in the same
   memory? docs/discovery.md has the figures of `build/tests/timeline/mutations CASES`, which tries CASES cases. */

#include "compiler/prove/prove.h"
#include "tests/search/costs_of.h"
#include "tests/timeline/compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES = 40 }; /* tried in each case */
static uint64_t cases = 40;

typedef enum Change { MOVE, JOIN, SPLIT, KINDS } Change;
static const char *const change_names[KINDS] = {"a pass moved", "an F&B made", "an F&B split"};

typedef struct Counts {
    /* legal: changes after which the orders are legal and hold no more activations; shorter: those of them that shorten
       the orders */
    uint64_t legal, shorter;
    double most; /* largest gain as a share of the makespan */
} Counts;

static Status stop_at_order(const Compilation *c, Form form)
{
    (void)c;
    return form == FORM_ORDER ? STATUS_RUN_FAILED : STATUS_OK;
}

static Costs random_costs(uint64_t *seed)
{
    Costs costs = costs_of(1, 1 + 0.05 * (double)random_below(seed, 11), 0, 0.02 * (double)random_below(seed, 11));
    costs.all[COST_W] = costs.all[COST_I] * 0.1 * (double)random_below(seed, 11);
    const double backward = costs.all[COST_I] + costs.all[COST_W];
    costs.all[COST_FB] = backward + 0.1 * (double)(1 + random_below(seed, 10));
    return costs;
}

/* Compiles the schedule up to its order, which is then in *c. False: the schedule refuses this number of ranks or
   microbatches. */
static bool order_of(const char *path, int64_t ranks, int64_t microbatches, const Costs *costs, Arena *arena,
                     Compilation *c)
{
    Source *source = arena_allocate(arena, sizeof *source);
    Parameters *parameters = arena_allocate(arena, sizeof *parameters);
    Error error = {""};
    parameters_set_ranks(parameters, ranks);
    parameters_set_microbatches(parameters, microbatches);
    *c = (Compilation){
        .arena = arena, .source = source, .parameters = parameters, .costs = costs, .reached = stop_at_order};
    assert_int_equal(source_read(path, arena, source, &error), STATUS_OK);
    return compile(c, &error) == STATUS_RUN_FAILED;
}

/* The most activations that the rank holds: from F to the end of B or W. */
static int64_t peak_of(const Order *order)
{
    int64_t held = 0, most = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        const uint8_t kind = order->actions[i].kind;
        held += kind == ACTION_F;
        most = held > most ? held : most;
        held -= kind == ACTION_B || kind == ACTION_W;
    }
    return most;
}

/* The makespan; negative: the order is not legal. */
static double makespan_of(const Compilation *c)
{
    Arena arena = {0};
    PassTable table;
    Timeline times;
    double makespan = -1;
    if (prove_passes(&c->schedule, &arena, diag_new(&arena, c->source), &table) &&
        timeline_run(&c->schedule, &table, &c->resolved, &arena, &times))
        makespan = times.makespan;
    arena_free(&arena);
    return makespan;
}

/* Moves actions[from] to `to`. */
static void move_action(Action *actions, uint32_t from, uint32_t to)
{
    const Action moved = actions[from];
    if (from < to)
        memmove(&actions[from], &actions[from + 1], (to - from) * sizeof *actions);
    else
        memmove(&actions[to + 1], &actions[to], (from - to) * sizeof *actions);
    actions[to] = moved;
}

static bool in_pair(const Order *order, uint32_t i)
{
    return order->actions[i].overlap || (i > 0 && order->actions[i - 1].overlap);
}

/* Changes the order at random. False: this change is not possible at the place drawn. */
static bool change_order(Order *order, Change change, uint64_t *seed)
{
    const uint32_t i = (uint32_t)random_below(seed, order->count);
    Action *const actions = order->actions;
    if (change == MOVE) {
        const uint32_t to = (uint32_t)random_below(seed, order->count);
        const uint32_t between = i < to ? to : to - 1; /* the action right before the moved one, unless `to` is 0 */
        if (i == to || in_pair(order, i) || (to > 0 && between < order->count && actions[between].overlap))
            return false;
        move_action(actions, i, to);
        return true;
    }
    if (change == SPLIT) {
        const bool pair = actions[i].overlap;
        actions[i].overlap = false;
        return pair;
    }
    if (i + 1 == order->count || in_pair(order, i) || in_pair(order, i + 1))
        return false;
    if (actions[i].kind == ACTION_B && actions[i + 1].kind == ACTION_F)
        move_action(actions, i, i + 1);
    const bool fits = actions[i].kind == ACTION_F && actions[i + 1].kind == ACTION_B;
    actions[i].overlap = fits;
    return fits;
}

/* Changes the orders of some ranks in the same way. If they stay legal and hold no more activations, measures the
   result. Restores the orders. */
static void try_change(Compilation *c, const uint32_t *ranks, int count, Change change, double makespan, uint64_t *seed,
                       Counts *counts)
{
    Action *kept[2];
    bool legal = true;
    const uint64_t begin = *seed;
    for (int k = 0; k < count; k++) {
        Order *order = &c->schedule.orders[ranks[k]];
        const size_t size = order->count * sizeof *order->actions;
        const int64_t peak = peak_of(order);
        kept[k] = malloc(size);
        assert_non_null(kept[k]);
        memcpy(kept[k], order->actions, size);
        *seed = begin; /* so that the change is made at the same positions on every rank */
        legal = change_order(order, change, seed) && peak_of(order) <= peak && legal;
    }
    const double changed = legal ? makespan_of(c) : -1, gain = 1 - changed / makespan;
    for (int k = 0; k < count; k++) {
        Order *order = &c->schedule.orders[ranks[k]];
        memcpy(order->actions, kept[k], order->count * sizeof *order->actions);
        free(kept[k]);
    }
    counts->legal += changed >= 0;
    if (changed < 0 || gain <= 1e-9)
        return;
    counts->shorter++;
    counts->most = gain > counts->most ? gain : counts->most;
}

/* `halves`: the schedule has two directions with half of the microbatches each, and rank P-1-r mirrors rank r. Both
   ranks are changed. */
static void mutate(const char *path, bool halves)
{
    uint64_t seed = 11, improved = 0, tried = 0;
    Counts counts[KINDS] = {{.legal = 0}};
    while (tried < cases) {
        Arena arena = {0};
        Compilation c;
        const int64_t step = halves ? 2 : 1, ranks = step * (1 + (int64_t)random_below(&seed, 8)),
                      microbatches = step * (1 + (int64_t)random_below(&seed, 3 * (uint64_t)ranks));
        const Costs costs = random_costs(&seed);
        if (order_of(path, ranks, microbatches, &costs, &arena, &c)) {
            const double makespan = makespan_of(&c);
            uint64_t before = 0, after = 0;
            assert_true(makespan > 0);
            for (Change change = MOVE; change < KINDS; change++) {
                before += counts[change].shorter;
                for (int i = 0; i < CHANGES; i++) {
                    const uint32_t rank = (uint32_t)random_below(&seed, c.schedule.ranks),
                                   mirrored = c.schedule.ranks - 1 - rank;
                    try_change(&c, (uint32_t[]){rank, mirrored}, halves ? 2 : 1, change, makespan, &seed,
                               &counts[change]);
                }
                after += counts[change].shorter;
            }
            improved += after > before;
            tried++;
        }
        arena_free(&arena);
    }
    printf("%s, %llu random cases: a change shortens the order in %llu\n", path, (unsigned long long)cases,
           (unsigned long long)improved);
    for (Change change = MOVE; change < KINDS; change++) {
        printf("  %s: %llu legal, %llu shorter, by %.2f %% at most\n", change_names[change],
               (unsigned long long)counts[change].legal, (unsigned long long)counts[change].shorter,
               100 * counts[change].most);
        assert_true(counts[change].legal > 0);
    }
}

TEST(v) { mutate("schedules/ebb-v.dps", false); }

TEST(two_directions) { mutate("schedules/ebb-two.dps", true); }

int main(int argc, char **argv)
{
    if (argc > 1)
        cases = strtoull(argv[1], NULL, 10);
    return test_program("mutations", NULL, NULL);
}
