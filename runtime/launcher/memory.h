#pragma once

/* How much memory the ranks of a machine can still use: the free memory of the machine, and what is free under the
   memory limit of each control group (container, job of a batch system) that the ranks are in. */

#include <stddef.h>
#include <stdint.h>

enum { MEMORY_POOLS_MAX = 8 };

typedef struct MemoryPool {
    char name[248]; /* "": the machine; otherwise the path of a control group, perhaps truncated */
    uint64_t key;   /* not 0; two ranks have the same key if and only if they share this pool */
    uint64_t free;  /* free bytes */
} MemoryPool;

typedef struct MemoryPools {
    size_t count;
    /* the machine first, if its free memory can be read; then control groups from the innermost to the outermost */
    MemoryPool pools[MEMORY_POOLS_MAX];
} MemoryPools;

/* The memory that a rank needs, and its pools. It contains no pointers, so ranks can gather it. */
typedef struct MemoryNeed {
    uint64_t bytes;
    uint64_t keys[MEMORY_POOLS_MAX]; /* keys of its pools, then 0 */
} MemoryNeed;

/* The pools of this process. Reads the kernel's files below `root` ("": those of this machine). A limit that cannot be
   read counts as no limit. */
MemoryPools memory_pools(const char *root);
MemoryNeed memory_need(const MemoryPools *pools, uint64_t bytes);

/* The first pool that is too small for the needs of all its ranks; *bytes is the sum of these needs. NULL: there is
   enough memory. */
const MemoryPool *memory_shortage(const MemoryPools *pools, const MemoryNeed *needs, uint32_t ranks, uint64_t *bytes);
