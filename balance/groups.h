#ifndef BALANCE_GROUPS_H
#define BALANCE_GROUPS_H

/* Which node takes which groups. Each takes the same number. */

#include "balance/balance.h"

typedef struct Partitions {
    uint32_t count;
    const uint32_t *node_of; /* [count][groups] */
    const double *largest;   /* [count]: load of the node with the largest, rising */
    double others;           /* a bound of the same of all other partitions; INFINITY: there are none */
} Partitions;

/* All partitions where they are few, else one that is good. Nodes with the same number of slots are not told apart. */
Partitions groups_partitions(const BalanceShape *shape, const double *loads, Arena *arena);

#endif
