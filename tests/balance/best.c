/* The best placement: compared with all placements of small shapes; and properties that hold for any shape. */

#include "tests/balance/random.h"
#include "tests/sanitized.h"
#include "tests/test.h"

#include <string.h>

static const double tolerance = 1e-9;

static double largest_load(const BalanceShape *shape, const double *loads, const uint32_t *placement, Arena *arena)
{
    double *gpu_loads = arena_array(arena, shape->gpus, sizeof *gpu_loads), largest = 0;
    balance_gpu_loads(shape, loads, placement, gpu_loads, arena);
    for (uint32_t g = 0; g < shape->gpus; g++)
        largest = fmax(largest, gpu_loads[g]);
    return largest;
}

/* Whether each group is on one node, and each node has the same number of groups; true for a shape that is not
   hierarchical. */
static bool keeps_groups(const BalanceShape *shape, const uint32_t *placement)
{
    if (!balance_is_hierarchical(shape))
        return true;
    uint32_t node_of[MOST], groups[MOST] = {0};
    memset(node_of, 0xff, sizeof node_of);
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++)
        for (uint32_t slot = balance_first_slot(shape, gpu); slot < balance_first_slot(shape, gpu + 1); slot++) {
            const uint32_t group = placement[slot] / (shape->experts / shape->groups);
            const uint32_t node = gpu / (shape->gpus / shape->nodes);
            if (node_of[group] != UINT32_MAX && node_of[group] != node)
                return false;
            groups[node] += node_of[group] == UINT32_MAX;
            node_of[group] = node;
        }
    for (uint32_t node = 0; node < shape->nodes; node++)
        if (groups[node] != shape->groups / shape->nodes)
            return false;
    return true;
}

static bool holds_every_expert(const BalanceShape *shape, const uint32_t *placement)
{
    uint32_t count[MOST];
    balance_counts(shape, placement, count);
    for (uint32_t e = 0; e < shape->experts; e++)
        if (!count[e])
            return false;
    return true;
}

/* --- all placements --- */

typedef struct All {
    const BalanceShape *shape;
    const double *loads;
    uint32_t placement[MOST];
    /* the largest load of a GPU, minimized over all placements, and over those in which no GPU has two replicas of one
       expert */
    double least, least_distinct;
} All;

static void enumerate(All *all, uint32_t slot, uint32_t gpu)
{
    const BalanceShape *shape = all->shape;
    if (slot == shape->replicas) {
        if (!holds_every_expert(shape, all->placement) || !keeps_groups(shape, all->placement))
            return;
        Arena arena = {0};
        const double largest = largest_load(shape, all->loads, all->placement, &arena);
        all->least = fmin(all->least, largest);
        if (!balance_duplicates(shape, all->placement, &arena))
            all->least_distinct = fmin(all->least_distinct, largest);
        arena_free(&arena);
        return;
    }
    const bool next = slot == balance_first_slot(shape, gpu + 1);
    /* the order of the experts within a GPU does not matter, so only one order is enumerated */
    const bool again = !next && slot > balance_first_slot(shape, gpu);
    for (uint32_t e = again ? all->placement[slot - 1] : 0; e < shape->experts; e++) {
        all->placement[slot] = e;
        enumerate(all, slot + 1, gpu + next);
    }
}

static BalanceShape small_shape(Random *random)
{
    for (;;) {
        const BalanceShape shape = random_shape(random, 8, false);
        if (shape.gpus <= 4 && pow(shape.experts, shape.replicas) < 150000)
            return shape;
    }
}

TEST(none_is_better)
{
    uint32_t hierarchical = 0, better_with_duplicates = 0, uneven = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        Random random = {seed};
        Arena arena = {0};
        Error error = {""};
        const BalanceShape shape = small_shape(&random);
        double loads[MOST], bound;
        uint32_t placement[MOST];
        random_loads(&random, shape.experts, loads);
        All all = {.shape = &shape, .loads = loads, .least = INFINITY, .least_distinct = INFINITY};
        enumerate(&all, 0, 0);
        assert_int_equal(
            balance_best(&shape, &(BalanceRequest){.distinct = false}, loads, placement, &bound, &arena, &error),
            STATUS_OK);
        const double largest = largest_load(&shape, loads, placement, &arena);
        assert_true(fabs(largest - all.least) <= tolerance * all.least);
        assert_true(fabs(bound - balance_of(&shape, loads, placement, &arena)) <= tolerance);
        if (all.least_distinct <= all.least * (1 + tolerance) && all.least > 0)
            assert_int_equal(balance_duplicates(&shape, placement, &arena), 0);
        const Status status =
            balance_best(&shape, &(BalanceRequest){.distinct = true}, loads, placement, &bound, &arena, &error);
        assert_int_equal(status, all.least_distinct < INFINITY ? STATUS_OK : STATUS_BAD_USAGE);
        if (status == STATUS_OK) {
            assert_int_equal(balance_duplicates(&shape, placement, &arena), 0);
            assert_true(fabs(largest_load(&shape, loads, placement, &arena) - all.least_distinct) <=
                        tolerance * all.least_distinct);
        }
        if (balance_check(&shape, true, &error) == STATUS_OK) {
            balance_eplb(&shape, 1, loads, placement, &arena);
            assert_true(largest_load(&shape, loads, placement, &arena) >= all.least * (1 - tolerance));
        }
        hierarchical += balance_is_hierarchical(&shape);
        uneven += shape.replicas % shape.gpus != 0;
        better_with_duplicates += all.least < all.least_distinct * (1 - tolerance) && all.least_distinct < INFINITY;
        arena_free(&arena);
    }
    assert_true(hierarchical > 20 && uneven > 20 && better_with_duplicates > 5); /* all kinds of cases occur */
}

/* The published worked example: the largest load of a GPU is the best possible one. */
TEST(the_worked_example)
{
    static const double loads[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                        {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    static const double largest[2][2] = {{151, 179.5}, {136, 172}}; /* hierarchical, global */
    for (uint32_t i = 0; i < 4; i++) {
        const BalanceShape shape = {12, 16, 8, i < 2 ? 4 : 1, i < 2 ? 2 : 1, FRONT_DPC};
        Arena arena = {0};
        Error error;
        uint32_t placement[16];
        double bound;
        balance_best(&shape, &(BalanceRequest){.distinct = false}, loads[i % 2], placement, &bound, &arena, &error);
        assert_true(fabs(largest_load(&shape, loads[i % 2], placement, &arena) - largest[i / 2][i % 2]) < tolerance);
        assert_true(fabs(bound - balance_of(&shape, loads[i % 2], placement, &arena)) < tolerance);
        arena_free(&arena);
    }
}

static void check_placement(const BalanceShape *shape, bool distinct, const double *loads)
{
    Arena arena = {0};
    Error error = {""};
    uint32_t placement[MOST], published[MOST];
    double bound;
    const Status status =
        balance_best(shape, &(BalanceRequest){.distinct = distinct}, loads, placement, &bound, &arena, &error);
    if (status == STATUS_OK) {
        const double balance = balance_of(shape, loads, placement, &arena);
        for (uint32_t slot = 0; slot < shape->replicas; slot++)
            assert_true(placement[slot] < shape->experts);
        assert_true(holds_every_expert(shape, placement));
        assert_true(keeps_groups(shape, placement));
        assert_true(balance <= bound + tolerance && bound <= 1);
        assert_true(!distinct || balance_duplicates(shape, placement, &arena) == 0);
        if (!distinct && balance_check(shape, true, &error) == STATUS_OK) {
            balance_eplb(shape, 1, loads, published, &arena);
            assert_true(balance >= balance_of(shape, loads, published, &arena) - 1e-14);
            assert_true(balance_of(shape, loads, published, &arena) <= bound + tolerance);
        }
    } else {
        assert_true(distinct && error.text[0]);
    }
    arena_free(&arena);
}

TEST(what_holds_always)
{
    for (uint64_t seed = 0; seed < cases(1000); seed++) {
        Random random = {seed};
        double loads[MOST];
        const BalanceShape shape = random_shape(&random, seed % 10 ? 120 : MOST, below(&random, 2));
        random_loads(&random, shape.experts, loads);
        check_placement(&shape, below(&random, 2), loads);
    }
}

/* Groups on nodes are a restriction: no bound is above that of all experts on all GPUs, even if there are too many
   partitions of the groups to try. A few busy experts then decide, and the bound knows it. */
TEST(bounds_with_groups)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        Random random = {seed};
        const uint32_t nodes = 2 + 2 * below(&random, 2), gpus = nodes * (2u << below(&random, 3));
        const BalanceShape groups = {128, 128, gpus, seed % 2 ? 16 : 128, nodes, FRONT_DPC};
        const BalanceShape global = {128, 128, gpus, 1, 1, FRONT_DPC};
        Arena arena = {0};
        Error error;
        uint32_t placement[128];
        double loads[128], bound, bound_of_all;
        for (uint32_t e = 0; e < 128; e++)
            loads[e] = pow((1 + below(&random, 1000)) / 1000.0, -0.8);
        balance_best(&global, &(BalanceRequest){.distinct = false}, loads, placement, &bound_of_all, &arena, &error);
        balance_best(&groups, &(BalanceRequest){.distinct = false}, loads, placement, &bound, &arena, &error);
        assert_true(bound <= bound_of_all + 1e-6); /* both are halved 24 times */
        const double balance = balance_of(&groups, loads, placement, &arena);
        assert_true(balance <= bound + tolerance);
        assert_true(groups.groups < 128 || bound - balance < 0.03);
        arena_free(&arena);
    }
}

TEST(odd_loads)
{
    const BalanceShape shapes[] = {{12, 16, 8, 4, 2, FRONT_DPC},
                                   {12, 13, 5, 1, 1, FRONT_DPC},
                                   {8, 8, 8, 1, 1, FRONT_DPC},
                                   {3, 20, 4, 1, 1, FRONT_DPC},
                                   {64, 80, 8, 8, 4, FRONT_DPC}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 5; kind++) {
            double loads[MOST];
            for (uint32_t e = 0; e < shapes[s].experts; e++)
                loads[e] = kind == 0   ? 0
                           : kind == 1 ? 7
                           : kind == 2 ? e == 2
                           : kind == 3 ? BALANCE_LOAD_MAX
                           : e % 2     ? 1e-30
                                       : 1e20;
            check_placement(&shapes[s], false, loads);
            check_placement(&shapes[s], true, loads);
        }
}

/* A shape with more groups than the search enumerates. */
TEST(many_groups)
{
    enum { GROUPS = 20000 };
    const BalanceShape shape = {GROUPS, GROUPS, 8, GROUPS, 4, FRONT_DPC};
    Arena arena = {0};
    Error error = {""};
    double *loads = arena_array(&arena, GROUPS, sizeof *loads), bound;
    uint32_t *placement = arena_array(&arena, GROUPS, sizeof *placement), slot;
    for (uint32_t e = 0; e < GROUPS; e++)
        loads[e] = e;
    assert_int_equal(
        balance_best(&shape, &(BalanceRequest){.distinct = false}, loads, placement, &bound, &arena, &error),
        STATUS_OK);
    assert_int_equal(balance_check_placement(&shape, placement, &slot, &arena, &error), STATUS_OK);
    assert_true(balance_of(&shape, loads, placement, &arena) > 0.999);
    arena_free(&arena);
}

int main(void) { return test_program("balance: best", NULL, NULL); }
