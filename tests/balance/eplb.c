/* The published algorithm: its worked example, and hundreds of random cases, compared with a second implementation that
   follows the rules literally and is not fast. */

#include "tests/balance/random.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

/* Loads and placement are those in the README of github.com/deepseek-ai/EPLB. */
TEST(the_published_example)
{
    static const double loads[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                        {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    static const uint32_t expected[2][16] = {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                                             {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
    static const uint32_t count[2][12] = {{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1}, {1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1}};
    const BalanceShape shape = {.experts = 12, .replicas = 16, .gpus = 8, .groups = 4, .nodes = 2};
    uint32_t placement[2][16], counted[12];
    Arena arena = {0};
    balance_eplb(&shape, 2, *loads, *placement, &arena);
    assert_memory_equal(placement, expected, sizeof expected);
    for (int layer = 0; layer < 2; layer++) {
        balance_counts(&shape, placement[layer], counted);
        assert_memory_equal(counted, count[layer], sizeof counted);
    }
    arena_free(&arena);
}

/* --- the second implementation --- */

/* Computes pack[i], the pack of item i, and rank[i], the position of item i in that pack. */
static void slow_packing(const float *weights, uint32_t count, uint32_t packs, uint32_t *pack, uint32_t *rank)
{
    const uint32_t each = count / packs;
    float *sums = calloc(packs, sizeof *sums);
    uint32_t *held = calloc(packs, sizeof *held);
    bool *done = calloc(count, sizeof *done);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t item = count, to = packs;
        for (uint32_t i = 0; i < count; i++)
            if (!done[i] && (item == count || weights[i] > weights[item]))
                item = i;
        for (uint32_t p = 0; p < packs; p++)
            if (held[p] < each && (to == packs || sums[p] < sums[to]))
                to = p;
        if (each == 1) /* the published code packs one item per pack without sorting */
            item = to = n;
        done[item] = true;
        pack[item] = to;
        rank[item] = held[to]++;
        sums[to] += weights[item];
    }
    free(sums);
    free(held);
    free(done);
}

/* Computes count[i], the number of replicas of item i, and phy[r], the item of replica r. */
static void slow_replication(const float *weights, uint32_t items, uint32_t replicas, uint32_t *phy, uint32_t *count)
{
    for (uint32_t r = 0; r < replicas; r++) {
        uint32_t next = r;
        if (r >= items) {
            next = 0;
            for (uint32_t i = 1; i < items; i++)
                if (weights[i] / (float)count[i] > weights[next] / (float)count[next])
                    next = i;
        }
        phy[r] = next;
        count[next] = r < items ? 1 : count[next] + 1;
    }
}

static void slow_eplb(const BalanceShape *shape, const float *loads, uint32_t *placement)
{
    const bool hierarchical = shape->groups % shape->nodes == 0;
    const uint32_t nodes = hierarchical ? shape->nodes : 1, groups = hierarchical ? shape->groups : 1,
                   size = shape->experts / groups;
    const uint32_t items = shape->experts / nodes, replicas = shape->replicas / nodes, gpus = shape->gpus / nodes;
    float sums[MOST] = {0}, weights[MOST];
    uint32_t pack[MOST], rank[MOST], experts[MOST], phy[MOST], count[MOST];
    for (uint32_t e = 0; e < shape->experts; e++)
        sums[e / size] += loads[e];
    slow_packing(sums, groups, nodes, pack, rank);
    for (uint32_t e = 0; e < shape->experts; e++)
        experts[(pack[e / size] * (groups / nodes) + rank[e / size]) * size + e % size] = e;
    for (uint32_t node = 0; node < nodes; node++, placement += replicas) {
        for (uint32_t i = 0; i < items; i++)
            weights[i] = loads[experts[node * items + i]];
        slow_replication(weights, items, replicas, phy, count);
        for (uint32_t r = 0; r < replicas; r++)
            sums[r] = weights[phy[r]] / (float)count[phy[r]];
        slow_packing(sums, replicas, gpus, pack, rank);
        for (uint32_t r = 0; r < replicas; r++)
            placement[pack[r] * (replicas / gpus) + rank[r]] = experts[node * items + phy[r]];
    }
}

TEST(random_cases)
{
    for (uint64_t seed = 0; seed < 900; seed++) {
        Random random = {seed};
        const BalanceShape shape = random_shape(&random, MOST, true);
        double loads[MOST];
        float narrow[MOST];
        uint32_t placement[MOST], expected[MOST];
        Error error = {""};
        random_loads(&random, shape.experts, loads);
        for (uint32_t e = 0; e < shape.experts; e++)
            narrow[e] = (float)loads[e];
        assert_int_equal(balance_check(&shape, true, &error), STATUS_OK);
        Arena arena = {0};
        balance_eplb(&shape, 1, loads, placement, &arena);
        slow_eplb(&shape, narrow, expected);
        assert_memory_equal(placement, expected, shape.replicas * sizeof *placement);
        arena_free(&arena);
    }
}

/* The placement of a layer does not depend on the other layers. */
TEST(layers_are_apart)
{
    enum { LAYERS = 5 };
    const BalanceShape shape = {.experts = 64, .replicas = 80, .gpus = 16, .groups = 8, .nodes = 4};
    double loads[LAYERS][64];
    uint32_t together[LAYERS][80], alone[80];
    Random random = {7};
    for (int layer = 0; layer < LAYERS; layer++)
        random_loads(&random, 64, loads[layer]);
    Arena arena = {0};
    balance_eplb(&shape, LAYERS, *loads, *together, &arena);
    for (int layer = 0; layer < LAYERS; layer++) {
        balance_eplb(&shape, 1, loads[layer], alone, &arena);
        assert_memory_equal(together[layer], alone, sizeof alone);
    }
    arena_free(&arena);
}

int main(void) { return test_program("balance: eplb", NULL, NULL); }
