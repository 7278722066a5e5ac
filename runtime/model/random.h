#pragma once

/* Counter-based random numbers: a number depends only on its key and its index. */

#include <stdint.h>

/* Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014: the finaliser of SplitMix64. */
static inline uint64_t random_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* Makes a key from another key and a number. */
static inline uint64_t random_key(uint64_t key, uint64_t number)
{
    return random_mix(random_mix(key + 0x9e3779b97f4a7c15u) ^ (number * 0xd1342543de82ef95u + 1));
}

static inline uint64_t random_bits(uint64_t key, uint64_t index)
{
    return random_mix(key + (index + 1) * 0x9e3779b97f4a7c15u);
}

/* The scaled sum of four uniform numbers: nearly normally distributed, mean 0, standard deviation 1, between -3.5 and
   3.5. Uses no function of the C library, so the bits are the same on every machine. */
static inline float random_normal(uint64_t key, uint64_t index)
{
    const uint64_t bits = random_bits(key, index);
    const int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) + (int32_t)(bits >> 32 & 0xffff) +
                        (int32_t)(bits >> 48);
    return (float)(2 * sum - 4 * 0xffff) * (1 / 75674.0f); /* 2 * 65536 / sqrt(3) */
}
