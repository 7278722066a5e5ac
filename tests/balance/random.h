#pragma once

/* Random shapes and loads, the same in every run. */

#include "balance/balance.h"

#include <math.h>

enum { MOST = 640 }; /* largest number of physical experts in a test */

typedef struct Random {
    uint64_t state;
} Random;

static inline uint32_t below(Random *random, uint32_t limit)
{
    uint64_t x = random->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ x >> 31) >> 32) % limit;
}

/* A random shape of at most `most` physical experts. `even`: the same number on every GPU, as balance_eplb needs it. */
static inline BalanceShape random_shape(Random *random, uint32_t most, bool even)
{
    for (;;) {
        BalanceShape shape = {.nodes = 1 + below(random, 4)};
        shape.gpus = shape.nodes * (1 + below(random, 8));
        shape.groups = below(random, 4) ? shape.nodes * (1 + below(random, 4)) : 1 + below(random, 8);
        shape.experts = shape.groups * (1 + below(random, 24));
        shape.replicas = shape.experts + below(random, 1 + shape.experts / 2);
        if (even)
            shape.replicas = (shape.replicas + shape.gpus - 1) / shape.gpus * shape.gpus;
        Error error;
        if (shape.replicas <= most && balance_check(&shape, even, &error) == STATUS_OK)
            return shape;
    }
}

/* Random loads of one of four kinds: uniform, skewed, with some that are equal, or with zeros. */
static inline void random_loads(Random *random, uint32_t experts, double *loads)
{
    const uint32_t kind = below(random, 4);
    for (uint32_t e = 0; e < experts; e++) {
        const double uniform = (1 + below(random, 1u << 31)) / 2147483648.0;
        loads[e] = kind == 0   ? 1000 * uniform
                   : kind == 1 ? 1 / uniform
                   : kind == 2 ? 100 + floor(1000 * uniform) /* some are equal */
                               : (below(random, 3) ? -log(uniform) : 0);
    }
}
