/* EPLB as DeepSeek published it. A global placement counts as one group on one node. The three steps:

     1. pack the groups to the nodes (balanced_packing),
     2. on each node give further replicas to the experts with the largest load per replica (replicate_experts),
     3. pack the replicas of a node to its GPUs (balanced_packing).

   Loads are not negative, so their bits as integers have the same order as the floats. A sort key of 64 bits therefore
   has the bits of a load in its upper half and an index in its lower half, which decides between equal loads. */

#include "balance/balance.h"

#include <string.h>

typedef struct Workspace {
    uint64_t *keys, *spare; /* [replicas] */
    uint64_t *tree;         /* [4 * replicas] */
    uint32_t *held;         /* [packs]: number of items in each pack so far */
    uint32_t *groups;       /* [groups]: the groups, node after node */
    /* [experts]: the experts, node after node, on a node group after group. A position is an index into this array.
       */
    uint32_t *experts;
    uint32_t *items;  /* [replicas]: for each replica of the current node, the position of its expert */
    uint32_t *count;  /* [experts]: number of replicas of the expert at each position */
    uint32_t *packed; /* [replicas]: the replicas of the current node (indices into `items`), GPU after GPU */
    float *weights;   /* [replicas] */
    float *loads;     /* [experts]: loads of the current layer */
} Workspace;

static uint32_t bits_of(float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits;
}

static uint64_t key_of(float weight, uint32_t index) { return (uint64_t)bits_of(weight) << 32 | index; }

/* A key like key_of, but the largest weight has the smallest key. */
static uint64_t falling_key(float weight, uint32_t index) { return (uint64_t)~bits_of(weight) << 32 | index; }

static float weight_of(uint64_t key)
{
    const uint32_t bits = (uint32_t)(key >> 32);
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

/* --- a tournament: a heap of `size` keys, a power of two. The keys begin at tree[size]; tree[1] is the smallest ---
   */

static uint32_t tournament_size(uint32_t keys)
{
    uint32_t size = 1;
    while (size < keys)
        size *= 2;
    return size;
}

static uint64_t smaller(uint64_t one, uint64_t other) { return one < other ? one : other; }

/* Starts with the keys that the caller has put at tree[size]; entries after the first `keys` never win. */
static void tournament_begin(uint64_t *tree, uint32_t size, uint32_t keys)
{
    for (uint32_t i = size + keys; i < 2 * size; i++)
        tree[i] = UINT64_MAX;
    for (uint32_t i = size; i-- > 1;)
        tree[i] = smaller(tree[2 * i], tree[2 * i + 1]);
}

static void tournament_replace(uint64_t *tree, uint32_t size, uint32_t index, uint64_t key)
{
    uint32_t i = size + index;
    tree[i] = key;
    for (; i > 1; i /= 2) {
        key = smaller(key, tree[i ^ 1]);
        tree[i / 2] = key;
    }
}

/* --- sorting --- */

enum { DIGIT_BITS = 8, DIGITS = 32 / DIGIT_BITS, DIGIT_VALUES = 1 << DIGIT_BITS };

/* Sorts keys by their upper halves, digit by digit from the lowest; keys with equal upper halves keep their order. */
static void radix_sort(uint64_t *keys, uint64_t *spare, uint32_t count)
{
    uint32_t starts[DIGITS][DIGIT_VALUES] = {{0}};
    for (uint32_t i = 0; i < count; i++)
        for (int d = 0; d < DIGITS; d++)
            starts[d][keys[i] >> (32 + DIGIT_BITS * d) & (DIGIT_VALUES - 1)]++;
    for (int d = 0; d < DIGITS; d++) {
        uint32_t start = 0;
        for (int value = 0; value < DIGIT_VALUES; value++) {
            const uint32_t times = starts[d][value];
            starts[d][value] = start;
            start += times;
        }
        for (uint32_t i = 0; i < count; i++)
            spare[starts[d][keys[i] >> (32 + DIGIT_BITS * d) & (DIGIT_VALUES - 1)]++] = keys[i];
        uint64_t *sorted = spare;
        spare = keys;
        keys = sorted;
    }
}

/* --- the steps --- */

/* Packs items by descending weight, each into the lightest pack that has room; but if each pack has room for only one
   item, item i goes into pack i. out: [count], pack after pack. */
static void pack(const Workspace *w, const float *weights, uint32_t count, uint32_t packs, uint32_t *out)
{
    const uint32_t each = count / packs;
    if (each == 1) {
        for (uint32_t i = 0; i < count; i++)
            out[i] = i;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        w->keys[i] = falling_key(weights[i], i);
    radix_sort(w->keys, w->spare, count);
    const uint32_t size = tournament_size(packs);
    for (uint32_t p = 0; p < packs; p++) {
        w->tree[size + p] = key_of(0, p);
        w->held[p] = 0;
    }
    tournament_begin(w->tree, size, packs);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t lightest = w->tree[1];
        const uint32_t item = (uint32_t)w->keys[i], p = (uint32_t)lightest;
        out[p * each + w->held[p]++] = item;
        const bool is_full = w->held[p] == each;
        tournament_replace(w->tree, size, p, is_full ? UINT64_MAX : key_of(weight_of(lightest) + weights[item], p));
    }
}

/* Packs the groups to the nodes, and lists the experts in w->experts: node after node, group after group. */
static void place_groups(const Workspace *w, const BalanceShape *shape, uint32_t nodes, uint32_t groups)
{
    const uint32_t size = shape->experts / groups;
    for (uint32_t g = 0; g < groups; g++) {
        w->weights[g] = 0;
        for (uint32_t i = 0; i < size; i++)
            w->weights[g] += w->loads[g * size + i];
    }
    pack(w, w->weights, groups, nodes, w->groups);
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = 0; i < size; i++)
            w->experts[g * size + i] = w->groups[g] * size + i;
}

/* Fills w->items with `replicas` replicas of the experts at positions first to first + experts - 1 of w->experts. Each
   item is such a position. One replica of each expert comes first; each further replica is of the expert that has the
   largest load per replica so far. */
static void replicate(const Workspace *w, uint32_t first, uint32_t experts, uint32_t replicas)
{
    const uint32_t size = tournament_size(experts);
    for (uint32_t i = 0; i < experts; i++) {
        w->items[i] = first + i;
        w->count[first + i] = 1;
        w->tree[size + i] = falling_key(w->loads[w->experts[first + i]], i);
    }
    tournament_begin(w->tree, size, experts);
    for (uint32_t r = experts; r < replicas; r++) {
        const uint32_t i = (uint32_t)w->tree[1];
        w->items[r] = first + i;
        const float share = w->loads[w->experts[first + i]] / (float)++w->count[first + i];
        tournament_replace(w->tree, size, i, falling_key(share, i));
    }
}

static void place_layer(const Workspace *w, const BalanceShape *shape, uint32_t nodes, uint32_t groups,
                        uint32_t *placement)
{
    const uint32_t experts = shape->experts / nodes, replicas = shape->replicas / nodes;
    place_groups(w, shape, nodes, groups);
    for (uint32_t node = 0; node < nodes; node++) {
        replicate(w, node * experts, experts, replicas);
        for (uint32_t r = 0; r < replicas; r++)
            w->weights[r] = w->loads[w->experts[w->items[r]]] / (float)w->count[w->items[r]];
        pack(w, w->weights, replicas, shape->gpus / nodes, w->packed);
        for (uint32_t slot = 0; slot < replicas; slot++)
            placement[node * replicas + slot] = w->experts[w->items[w->packed[slot]]];
    }
}

void balance_eplb(const BalanceShape *shape, uint32_t layers, const double *loads, uint32_t *placement, Arena *arena)
{
    const bool hierarchical = shape->groups % shape->nodes == 0;
    const uint32_t n = shape->replicas, nodes = hierarchical ? shape->nodes : 1,
                   groups = hierarchical ? shape->groups : 1;
    const Workspace w = {.keys = arena_array(arena, n, sizeof *w.keys),
                         .spare = arena_array(arena, n, sizeof *w.spare),
                         .tree = arena_array(arena, 4 * (size_t)n, sizeof *w.tree),
                         .held = arena_array(arena, n, sizeof *w.held),
                         .groups = arena_array(arena, n, sizeof *w.groups),
                         .experts = arena_array(arena, n, sizeof *w.experts),
                         .items = arena_array(arena, n, sizeof *w.items),
                         .count = arena_array(arena, n, sizeof *w.count),
                         .packed = arena_array(arena, n, sizeof *w.packed),
                         .weights = arena_array(arena, n, sizeof *w.weights),
                         .loads = arena_array(arena, n, sizeof *w.loads)};
    for (uint32_t layer = 0; layer < layers; layer++) {
        for (uint32_t e = 0; e < shape->experts; e++)
            w.loads[e] = (float)loads[(size_t)layer * shape->experts + e];
        place_layer(&w, shape, nodes, groups, placement + (size_t)layer * n);
    }
}
