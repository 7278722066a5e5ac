/* Placements that start from a current placement: properties that every result has, and how much a few moves gain. */

#include "tests/balance/random.h"
#include "tests/sanitized.h"
#include "tests/test.h"

#include <string.h>

/* Draws a placement in force. In a third of the cases the experts are placed in order; otherwise the placement is good
   for other, random loads. */
static void placement_in_force(Random *random, const BalanceShape *shape, uint32_t *from, Arena *arena)
{
    double loads[MOST], bound;
    Error error;
    if (below(random, 3) == 0) {
        balance_in_order(shape, from);
        return;
    }
    random_loads(random, shape->experts, loads);
    if (below(random, 2) && balance_check(shape, true, &error) == STATUS_OK)
        balance_eplb(shape, 1, loads, from, arena);
    else
        balance_best(shape, &(BalanceRequest){.distinct = false}, loads, from, &bound, arena, &error);
}

/* A slot changes only if its GPU then has fewer replicas of the slot's old expert. */
static void slots_stay(const BalanceShape *shape, const uint32_t *from, const uint32_t *to)
{
    for (uint32_t gpu = 0; gpu < shape->gpus; gpu++)
        for (uint32_t first = balance_first_slot(shape, gpu), end = balance_first_slot(shape, gpu + 1), slot = first;
             slot < end; slot++) {
            uint32_t before = 0, after = 0, kept = 0;
            for (uint32_t s = first; s < end; s++) {
                before += from[s] == from[slot];
                after += to[s] == from[slot];
                kept += from[s] == from[slot] && to[s] == from[slot];
            }
            assert_int_equal(kept, before < after ? before : after);
        }
}

TEST(what_holds_of_every_plan)
{
    uint32_t limited = 0, kept = 0, refused = 0;
    for (uint64_t seed = 0; seed < cases(1200); seed++) {
        Random random = {seed};
        Arena arena = {0};
        Error error = {""};
        const BalanceShape shape = random_shape(&random, seed % 10 ? 60 : 200, below(&random, 2));
        double loads[MOST], bound;
        uint32_t from[MOST], to[MOST], slot;
        placement_in_force(&random, &shape, from, &arena);
        assert_int_equal(balance_check_placement(&shape, from, &slot, &arena, &error), STATUS_OK);
        random_loads(&random, shape.experts, loads);
        const BalanceRequest request = {.distinct = below(&random, 4) == 0,
                                        .from = from,
                                        .moves = below(&random, 3) ? below(&random, 12) : UINT32_MAX,
                                        .threshold = below(&random, 2) ? 0 : 0.1};
        const Status status = balance_best(&shape, &request, loads, to, &bound, &arena, &error);
        const uint32_t doubles = balance_duplicates(&shape, from, &arena);
        if (status != STATUS_OK) {
            assert_true(request.distinct && error.text[0]);
            refused++;
            arena_free(&arena);
            continue;
        }
        assert_int_equal(balance_check_placement(&shape, to, &slot, &arena, &error), STATUS_OK);
        const uint32_t moves = balance_moves(&shape, from, to, &arena);
        const double before = balance_of(&shape, loads, from, &arena), after = balance_of(&shape, loads, to, &arena);
        assert_true(moves <= request.moves);
        assert_true(after <= bound + 1e-9);
        slots_stay(&shape, from, to);
        assert_true(!request.distinct || balance_duplicates(&shape, to, &arena) == 0);
        if (!request.distinct || !doubles)
            assert_true(memcmp(from, to, shape.replicas * sizeof *to) == 0 ||
                        (after > before && after - before >= request.threshold));
        limited += moves > 0 && moves == request.moves;
        kept += moves == 0;
        arena_free(&arena);
    }
    assert_true(limited > cases(100) && kept > cases(100) && refused > cases(10)); /* all kinds of cases occur */
}

/* Without a limit on moves, the balance is at most 0.001 below that of a search from nothing, and never below that of
   balance_eplb. */
TEST(a_placement_from_nothing_is_hardly_better)
{
    for (uint64_t seed = 0; seed < cases(600); seed++) {
        Random random = {seed};
        Arena arena = {0};
        Error error = {""};
        const BalanceShape shape = random_shape(&random, seed % 3 ? 20 : 100, below(&random, 2));
        double loads[MOST], bound;
        uint32_t from[MOST], to[MOST], anew[MOST];
        placement_in_force(&random, &shape, from, &arena);
        random_loads(&random, shape.experts, loads);
        const BalanceRequest request = {.distinct = below(&random, 4) == 0, .from = from, .moves = UINT32_MAX},
                             nothing = {.distinct = request.distinct};
        if (balance_best(&shape, &request, loads, to, &bound, &arena, &error) == STATUS_OK) {
            const double balance = balance_of(&shape, loads, to, &arena);
            balance_best(&shape, &nothing, loads, anew, &bound, &arena, &error);
            assert_true(balance >= balance_of(&shape, loads, anew, &arena) - 0.001 - 1e-12);
            if (!request.distinct && balance_check(&shape, true, &error) == STATUS_OK) {
                balance_eplb(&shape, 1, loads, anew, &arena);
                assert_true(balance >= balance_of(&shape, loads, anew, &arena) - 1e-12);
            }
        }
        memset(loads, 0, sizeof loads);
        balance_best(&shape, &(BalanceRequest){.from = from, .moves = UINT32_MAX}, loads, to, &bound, &arena, &error);
        assert_memory_equal(to, from, shape.replicas * sizeof *to);
        balance_best(&shape, &(BalanceRequest){.distinct = false}, loads, to, &bound, &arena, &error);
        balance_in_order(&shape, anew);
        assert_memory_equal(to, anew, shape.replicas * sizeof *to);
        arena_free(&arena);
    }
}

/* In the mean of 20 cases, allowing more moves makes the balance better. Without a limit each balance is at most 0.001
   below that of the best placement. */
TEST(more_moves_win_more)
{
    enum { EXPERTS = 64 };
    const BalanceShape shape = {EXPERTS, 80, 16, 1, 1, FRONT_DPC};
    double mean[5] = {0};
    for (uint64_t seed = 0; seed < 20; seed++) {
        Random random = {seed};
        Arena arena = {0};
        Error error = {""};
        double loads[EXPERTS], bound;
        uint32_t from[80], to[80];
        for (uint32_t e = 0; e < EXPERTS; e++)
            loads[e] = 1000 + below(&random, 3000);
        balance_eplb(&shape, 1, loads, from, &arena);
        for (uint32_t e = 0; e < EXPERTS; e++)
            loads[e] *= 0.7 + below(&random, 1000) * 0.0006;
        static const uint32_t limits[] = {0, 2, 6, 20, UINT32_MAX};
        for (int i = 0; i < 5; i++) {
            const BalanceRequest request = {.from = from, .moves = limits[i]};
            assert_int_equal(balance_best(&shape, &request, loads, to, &bound, &arena, &error), STATUS_OK);
            mean[i] += balance_of(&shape, loads, to, &arena) / 20;
        }
        const double unlimited = balance_of(&shape, loads, to, &arena);
        balance_best(&shape, &(BalanceRequest){.distinct = false}, loads, to, &bound, &arena, &error);
        assert_true(unlimited >= balance_of(&shape, loads, to, &arena) - 0.001);
        arena_free(&arena);
    }
    print_message("balance after 0, 2, 6, 20, all moves: %.4f %.4f %.4f %.4f %.4f\n", mean[0], mean[1], mean[2],
                  mean[3], mean[4]);
    for (int i = 1; i < 5; i++)
        assert_true(mean[i] > mean[i - 1]);
}

/* Cases with one right answer. The two busiest experts are on one GPU: one of them changes places with an expert of the
   other GPU. Both replicas of an expert are on one GPU: one of them changes places with one of the other expert. */
TEST(the_right_move)
{
    Arena arena = {0};
    Error error;
    double bound;
    uint32_t to[6];
    const BalanceShape pairs = {4, 4, 2, 1, 1, FRONT_DPC}, spare = {2, 4, 2, 1, 1, FRONT_DPC};
    const BalanceRequest swap = {.from = (const uint32_t[]){0, 1, 2, 3}, .moves = 2};
    const double hot[] = {10, 9, 1, 2};
    balance_best(&pairs, &swap, hot, to, &bound, &arena, &error);
    assert_int_equal(balance_moves(&pairs, swap.from, to, &arena), 2);
    assert_true(balance_of(&pairs, hot, to, &arena) == 1);
    const BalanceRequest one = {.from = swap.from, .moves = 1};
    balance_best(&pairs, &one, hot, to, &bound, &arena, &error);
    /* no move is possible, because each expert must keep a replica */
    assert_memory_equal(to, swap.from, 4 * sizeof *to);
    const BalanceRequest replica = {.from = (const uint32_t[]){0, 0, 1, 1}, .moves = 2};
    balance_best(&spare, &replica, (const double[]){10, 1}, to, &bound, &arena, &error);
    assert_int_equal(balance_moves(&spare, replica.from, to, &arena), 2);
    assert_true(balance_of(&spare, (const double[]){10, 1}, to, &arena) == 1);
    arena_free(&arena);
}

TEST(wrong_placements)
{
    Arena arena = {0};
    Error error;
    uint32_t slot = 0;
    const BalanceShape shape = {4, 6, 2, 2, 2, FRONT_DPC};
    static const struct {
        uint32_t placement[6], slot;
        const char *words;
    } cases[] = {
        {{0, 1, 0, 2, 3, 4}, 5, "there is no expert 4: experts are numbered from 0 to 3"},
        {{0, 1, 0, 2, 2, 2}, 0, "expert 3 is on no GPU: each expert needs at least one of the 6 places"},
        {{0, 1, 2, 2, 3, 3}, 3, "expert 2 is on node 1, but its group 1 is on node 0: a group must be on one node"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(balance_check_placement(&shape, cases[i].placement, &slot, &arena, &error), STATUS_BAD_INPUT);
        assert_int_equal(slot, cases[i].slot);
        assert_string_equal(error.text, cases[i].words);
    }
    arena_free(&arena);
}

int main(void) { return test_program("balance: held", NULL, NULL); }
