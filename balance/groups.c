#include "balance/groups.h"

#include "balance/domain.h"
#include "base/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITIONS_MOST = 512, GROUPS_MOST = 64 }; /* beyond these limits the partitions are not enumerated */

typedef struct Partition {
    double largest;
    uint32_t index;
} Partition;

typedef struct Enumeration {
    uint32_t groups, nodes;
    bool nodes_differ;   /* nodes have different numbers of slots */
    const double *loads; /* [groups] */
    /* [PARTITIONS_MOST + 2][groups]: the node of each group in each partition; row `count` is the partition that is
       being made */
    uint32_t *node_of;
    uint32_t count; /* number of complete partitions; PARTITIONS_MOST + 1: there are too many to list */
    uint32_t *held; /* [nodes]: number of groups on the node so far */
    double *load;   /* [nodes] */
    Partition *found;
} Enumeration;

static void assign(Enumeration *e, uint32_t group)
{
    if (e->count > PARTITIONS_MOST)
        return;
    uint32_t *node_of = e->node_of + (size_t)e->count * e->groups;
    if (group == e->groups) {
        double largest = 0;
        for (uint32_t n = 0; n < e->nodes; n++)
            largest = fmax(largest, e->load[n]);
        e->found[e->count] = (Partition){largest, e->count};
        e->count++;
        memcpy(node_of + e->groups, node_of, e->groups * sizeof *node_of);
        return;
    }
    for (uint32_t n = 0; n < e->nodes; n++) {
        if (e->held[n] == e->groups / e->nodes)
            continue;
        const bool first = e->held[n]++ == 0;
        const double before = e->load[n];
        e->load[n] += e->loads[group];
        e->node_of[(size_t)e->count * e->groups + group] = n;
        assign(e, group + 1);
        e->load[n] = before;
        e->held[n]--;
        if (first && !e->nodes_differ)
            break; /* nodes that are still empty are interchangeable: try only one of them */
    }
}

static int by_largest(const void *left, const void *right)
{
    const Partition *one = left, *other = right;
    COMPARE(one->largest, other->largest);
    return one->index < other->index ? -1 : 1;
}

static Partitions sorted(Enumeration *e, Arena *arena)
{
    uint32_t *node_of = arena_array(arena, (size_t)e->count * e->groups, sizeof *node_of);
    double *largest = arena_array(arena, e->count, sizeof *largest);
    qsort(e->found, e->count, sizeof *e->found, by_largest);
    for (uint32_t i = 0; i < e->count; i++) {
        largest[i] = e->found[i].largest;
        memcpy(node_of + (size_t)i * e->groups, e->node_of + (size_t)e->found[i].index * e->groups,
               e->groups * sizeof *node_of);
    }
    return (Partitions){e->count, node_of, largest, INFINITY};
}

/* Finds one good partition: calls domain_solve with the groups as experts of one replica each and the nodes as GPUs.
   */
static Partitions one_good(uint32_t groups, uint32_t nodes, const double *loads, Arena *arena)
{
    uint32_t *first = arena_array(arena, (size_t)nodes + 1, sizeof *first);
    uint32_t *node_of = arena_array(arena, groups, sizeof *node_of);
    double *largest = arena_array(arena, 1, sizeof *largest);
    int64_t steps = BALANCE_STEPS;
    for (uint32_t n = 0; n <= nodes; n++)
        first[n] = n * (groups / nodes);
    const Domain domain = domain_new(groups, loads, nodes, first, &steps, arena);
    Filling filling = filling_new(&domain, arena), same = filling_new(&domain, arena);
    const double bound = domain_solve(&domain, &filling, &same, arena);
    for (uint32_t slot = 0; slot < groups; slot++)
        node_of[filling.expert[slot]] = domain.gpu_of[slot];
    *largest = filling_largest(&domain, &filling);
    return (Partitions){1, node_of, largest, bound};
}

Partitions groups_partitions(const BalanceShape *shape, const double *loads, Arena *arena)
{
    const uint32_t groups = shape->groups, size = shape->experts / groups;
    double *sums = arena_array(arena, groups, sizeof *sums);
    for (uint32_t e = 0; e < shape->experts; e++)
        sums[e / size] += loads[e];
    if (groups > GROUPS_MOST)
        return one_good(groups, shape->nodes, sums, arena);
    Enumeration e = {
        .groups = groups, .nodes = shape->nodes, .loads = sums, .nodes_differ = shape->replicas % shape->gpus != 0};
    e.node_of = arena_array(arena, (size_t)(PARTITIONS_MOST + 2) * groups, sizeof *e.node_of);
    e.held = arena_array(arena, shape->nodes, sizeof *e.held);
    e.load = arena_array(arena, shape->nodes, sizeof *e.load);
    e.found = arena_array(arena, PARTITIONS_MOST + 1, sizeof *e.found);
    assign(&e, 0);
    return e.count <= PARTITIONS_MOST ? sorted(&e, arena) : one_good(groups, shape->nodes, sums, arena);
}
