#ifndef TESTS_LIBRARY_HOST_H
#define TESTS_LIBRARY_HOST_H

/* A host that gives libdps its memory, counts it, and can run out of it. Several threads may call its functions. */

#include "tests/library/client.h"

#include <stdatomic.h>

typedef struct Host {
    atomic_int live,
        left;         /* live: how many blocks exist; left: how many more may be allocated before allocation fails */
    int told;         /* how often progress was called */
    uint32_t planned; /* the number of orders in the last call of progress */
} Host;

static inline void *give(void *user, size_t size)
{
    Host *host = user;
    if (atomic_fetch_sub(&host->left, 1) <= 0)
        return NULL;
    host->live++;
    void *memory = malloc(size);
    memset(memory, 0xa5, size);
    return memory;
}

static inline void take(void *user, void *memory)
{
    ((Host *)user)->live--;
    free(memory);
}

#endif
