#pragma once

/* Partitions of the groups of experts among the nodes. Each node takes the same number of groups. */

#include "balance/balance.h"

typedef struct Partitions {
    uint32_t count;
    const uint32_t *node_of; /* [count][groups] */
    /* [count]: the largest load of a node in each partition, in ascending order */
    const double *largest;
    /* a lower bound of the largest load of a node in all partitions that are not listed; INFINITY: all are listed */
    double others;
} Partitions;

/* Lists all partitions if they are few, else one good partition. If all nodes have the same number of slots, partitions
   that differ only in the numbers of the nodes count as one. */
Partitions groups_partitions(const BalanceShape *shape, const double *loads, Arena *arena);
