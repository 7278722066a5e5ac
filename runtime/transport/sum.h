#pragma once

#include <stddef.h>
#include <string.h>

enum { SUM_BLOCK = 1024 };

typedef union SumBlock {
    float floats[SUM_BLOCK];
    double doubles[SUM_BLOCK];
} SumBlock;

/* block[i] = parts[0][start + i] + parts[1][start + i] + ..., added from left to right. Every transport adds in this
   order, so all of them give the same bits. `length` is at most SUM_BLOCK. The numbers are floats or doubles of `size`
   bytes. */
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

/* mpi and nccl divide a sum over `count` members into `count` slices of the buffer. Each member adds up one slice.
   Slices begin at multiples of SUM_LINE elements: a cache line of floats, and an alignment that GPU kernels need to be
   fast. */
enum { SUM_LINE = 16 }; /* elements */

typedef struct SumSlice {
    size_t start, length;
} SumSlice;

static inline SumSlice sum_slice(size_t elements, int member, int count)
{
    const size_t lines = (elements + SUM_LINE - 1) / SUM_LINE, m = (size_t)member, all = (size_t)count;
    const size_t first = SUM_LINE * (lines * m / all), next = SUM_LINE * (lines * (m + 1) / all);
    const size_t start = first < elements ? first : elements, end = next < elements ? next : elements;
    return (SumSlice){start, end - start};
}

/* How many elements are enough to hold one slice from each of `count` members, for buffers of up to `elements`
   elements. */
static inline size_t sum_slices_room(size_t elements, int count) { return elements + 2 * SUM_LINE * (size_t)count; }
