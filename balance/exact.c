/* Branch and bound: chooses first the number of replicas of each expert, then the GPU of each replica, the largest
   load first. */

#include "balance/domain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 32 };

typedef struct Exact {
    const Domain *domain;
    Filling *best;
    double largest; /* largest load of a GPU in `best` */
    double mean;
    int64_t *steps;        /* steps that may still be taken */
    uint32_t order[SMALL]; /* experts by descending load */
    uint32_t count[SMALL];
    /* the expert of each item; an item is a replica to place, the one with the largest load first */
    uint32_t item[SMALL];
    double share[SMALL], left[SMALL + 1]; /* share[i]: load of item i; left[i]: sum of share[i], share[i + 1], ... */
    uint32_t gpu[SMALL];                  /* gpu[i]: GPU of item i, for the items placed so far */
    uint32_t used[SMALL];                 /* used[g]: number of GPU g's slots in use */
    double load[SMALL];
} Exact;

static bool is_over(const Exact *x) { return *x->steps <= 0 || !is_less(x->mean, x->largest); }

static void keep(Exact *x)
{
    const Domain *domain = x->domain;
    uint32_t next[SMALL];
    memcpy(next, domain->first, domain->gpus * sizeof *next);
    for (uint32_t i = 0; i < domain->slots; i++)
        x->best->expert[next[x->gpu[i]]++] = x->item[i];
    filling_update(domain, x->best);
    x->largest = filling_largest(domain, x->best);
}

/* Whether a GPU before `gpu` has the same load, as many used slots and as many slots in all as `gpu`. pack calls this
   for the first replica of an expert, when all replicas of the experts before are placed. It then tries the replica on
   the earlier GPU only: on `gpu` the results would be the same. */
static bool is_repetition(const Exact *x, uint32_t gpu)
{
    const uint32_t *first = x->domain->first;
    for (uint32_t g = 0; g < gpu; g++)
        if (x->load[g] == x->load[gpu] && x->used[g] == x->used[gpu] &&
            first[g + 1] - first[g] == first[gpu + 1] - first[gpu])
            return true;
    return false;
}

static bool holds(const Exact *x, uint32_t i, uint32_t gpu)
{
    for (uint32_t k = i; k-- > 0 && x->item[k] == x->item[i];)
        if (x->gpu[k] == gpu)
            return true;
    return false;
}

/* False: the items from i on cannot be placed so that all loads stay below the best largest load. Compares only sums:
   the load of these items, and what the GPUs with an empty slot can still take. */
static bool has_room(const Exact *x, uint32_t i)
{
    double room = 0;
    for (uint32_t g = 0; g < x->domain->gpus; g++)
        if (x->used[g] < x->domain->first[g + 1] - x->domain->first[g])
            room += x->largest - x->load[g];
    return room > x->left[i] * (1 - equal_loads);
}

static void pack(Exact *x, uint32_t i)
{
    const Domain *domain = x->domain;
    if (i == domain->slots) {
        keep(x);
        return;
    }
    if (!has_room(x, i))
        return;
    /* another replica of the same expert as the item before: such items go to GPUs in ascending order */
    const bool again = i && x->item[i - 1] == x->item[i];
    for (uint32_t g = again ? x->gpu[i - 1] : 0; g < domain->gpus && !is_over(x); g++) {
        const double before = x->load[g];
        if (x->used[g] == domain->first[g + 1] - domain->first[g] || !is_less(before + x->share[i], x->largest) ||
            (domain->distinct && holds(x, i, g)) || (!again && is_repetition(x, g)))
            continue;
        --*x->steps;
        x->gpu[i] = g;
        x->used[g]++;
        x->load[g] += x->share[i];
        pack(x, i + 1);
        x->load[g] = before;
        x->used[g]--;
    }
}

/* Whether these numbers of replicas may lead to a smaller largest load. Some GPU holds j + 1 of the j * gpus + 1
   largest items. With the smallest items in its other slots, its load must be below the best largest load. */
static bool may_be_better(const Exact *x)
{
    const uint32_t slots = x->domain->slots, gpus = x->domain->gpus, each = slots / gpus;
    for (uint32_t j = 0; j < each && j * gpus < slots; j++) {
        const uint32_t at = j * gpus;
        const double together = x->left[at - j] - x->left[at + 1], others = x->left[slots - (each - j - 1)];
        if (!is_less(together + others, x->largest))
            return false;
    }
    return true;
}

static void pack_counts(Exact *x)
{
    const Domain *domain = x->domain;
    uint32_t items = 0;
    for (uint32_t i = 0; i < domain->experts; i++) { /* insertion sort by descending share */
        const uint32_t e = x->order[i];
        const double share = domain->loads[e] / x->count[e];
        uint32_t at = items;
        for (; at && x->share[at - 1] < share; at--)
            ;
        memmove(x->item + at + x->count[e], x->item + at, (items - at) * sizeof *x->item);
        memmove(x->share + at + x->count[e], x->share + at, (items - at) * sizeof *x->share);
        for (uint32_t r = 0; r < x->count[e]; r++, items++) {
            x->item[at + r] = e;
            x->share[at + r] = share;
        }
    }
    x->left[items] = 0;
    for (uint32_t i = items; i-- > 0;)
        x->left[i] = x->left[i + 1] + x->share[i];
    memset(x->used, 0, sizeof x->used);
    memset(x->load, 0, sizeof x->load);
    if (may_be_better(x))
        pack(x, 0);
}

/* Tries all numbers of replicas of the experts order[i], order[i + 1], ..., which have `slots` slots together. */
static void choose(Exact *x, uint32_t i, uint32_t slots)
{
    const Domain *domain = x->domain;
    const uint32_t others = domain->experts - i - 1, e = x->order[i];
    const uint32_t most = domain->distinct && slots - others > domain->gpus ? domain->gpus : slots - others;
    for (uint32_t count = others ? 1 : slots; count <= most && !is_over(x); count++) {
        if (!is_less(domain->loads[e] / count, x->largest))
            continue;
        --*x->steps;
        x->count[e] = count;
        if (others)
            choose(x, i + 1, slots - count);
        else
            pack_counts(x);
    }
}

bool filling_exact(const Domain *domain, Filling *filling, Arena *arena)
{
    if (domain->slots > SMALL || *domain->steps <= 0)
        return false;
    Exact *x = arena_allocate(arena, sizeof *x);
    x->domain = domain;
    x->steps = domain->steps;
    x->best = filling;
    x->largest = filling_largest(domain, filling);
    x->mean = domain_mean(domain);
    for (uint32_t e = 0; e < domain->experts; e++) {
        uint32_t at = e;
        for (; at && domain->loads[x->order[at - 1]] < domain->loads[e]; at--)
            x->order[at] = x->order[at - 1];
        x->order[at] = e;
    }
    choose(x, 0, domain->slots);
    return *x->steps > 0;
}
