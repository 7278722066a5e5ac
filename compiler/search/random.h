#pragma once

#include <stdint.h>

/* A random number 0..limit-1, the same on every machine. An expression or argument list may call random_of only once,
   because C does not fix the order of two calls. */
static inline uint32_t random_of(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}
