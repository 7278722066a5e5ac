#ifndef BALANCE_GROUPS_H
#define BALANCE_GROUPS_H

/* The partitions of the groups among the nodes. Each node takes the same number. */

#include "balance/balance.h"

typedef struct Partitions {
    uint32_t count;
    const uint32_t *node_of; /* [count][groups] */
    const double *largest;   /* [count]: the largest load of a node, ascending */
    double others;           /* a lower bound of that load in all other partitions; INFINITY: there are none */
} Partitions;

/* All partitions if they are few, else one good partition. Nodes with the same number of slots are not
   distinguished. */
Partitions groups_partitions(const BalanceShape *shape, const double *loads, Arena *arena);

#endif
