#ifndef TRANSPORT_SUM_H
#define TRANSPORT_SUM_H

#include <stddef.h>
#include <string.h>

enum { SUM_BLOCK = 1024 };

typedef union SumBlock {
    float floats[SUM_BLOCK];
    double doubles[SUM_BLOCK];
} SumBlock;

/* block[i] = parts[0][start + i] + parts[1][start + i] + ..., added from left to right: the one order in which every
   transport adds, so that all of them give the same bits. `length` is at most SUM_BLOCK; numbers of `size` bytes are
   floats or doubles. */
static inline void sum_in_order(void *const *parts, int count, size_t start, size_t length, size_t size,
                                SumBlock *block)
{
    memcpy(block, (const char *)parts[0] + start * size, length * size);
    for (int part = 1; part < count; part++) {
        const float *floats = parts[part];
        const double *doubles = parts[part];
        if (size == sizeof *floats)
            for (size_t i = 0; i < length; i++)
                block->floats[i] += floats[start + i];
        else
            for (size_t i = 0; i < length; i++)
                block->doubles[i] += doubles[start + i];
    }
}

/* Where a member's slice begins when `count` of them share the adding of a device's buffer: on a cache line, where
   kernels like it. */
static inline size_t sum_slice_start(size_t elements, int member, int count)
{
    const size_t lines = (elements + 15) / 16, start = 16 * (lines * (size_t)member / (size_t)count);
    return start < elements ? start : elements;
}

#endif
