#ifndef LAUNCHER_MEMORY_H
#define LAUNCHER_MEMORY_H

/* How much memory there still is for the ranks of a machine: the machine's own, and that of every control group with a
   limit that holds them (containers, jobs of a batch system). */

#include <stddef.h>
#include <stdint.h>

enum { MEMORY_POOLS_MAX = 8 };

typedef struct MemoryPool {
    char name[248]; /* "": the machine; else the path of a control group, as the kernel has it, perhaps cut */
    uint64_t key;   /* the same on every rank that this pool holds, and on no other; not 0 */
    uint64_t free;  /* bytes */
} MemoryPool;

typedef struct MemoryPools {
    size_t count;
    MemoryPool pools[MEMORY_POOLS_MAX]; /* the machine, then control groups from the innermost out */
} MemoryPools;

/* A rank's plan and what it takes it from. Plain values, to be gathered. */
typedef struct MemoryNeed {
    uint64_t bytes;
    uint64_t keys[MEMORY_POOLS_MAX]; /* of its pools, 0 behind them */
} MemoryNeed;

/* The pools that hold this process. Files of the kernel are looked for below `root`, "" for those of this machine; what
   it does not say is no limit. */
MemoryPools memory_pools(const char *root);
MemoryNeed memory_need(const MemoryPools *pools, uint64_t bytes);

/* The first of the pools that is too small for all the ranks that it holds, with what these need together in *bytes;
   NULL: there is enough. */
const MemoryPool *memory_shortage(const MemoryPools *pools, const MemoryNeed *needs, uint32_t ranks, uint64_t *bytes);

#endif
