#pragma once

/* For the comparison functions of qsort and bsearch. */

#include <stdint.h>

/* Returns from the comparison function if the two numbers differ; the smaller one comes first. */
#define COMPARE(a, b)                  \
    do {                               \
        if ((a) != (b))                \
            return (a) < (b) ? -1 : 1; \
    } while (0)

static inline int compare_doubles(const void *left, const void *right)
{
    COMPARE(*(const double *)left, *(const double *)right);
    return 0;
}

static inline int compare_uint32(const void *left, const void *right)
{
    COMPARE(*(const uint32_t *)left, *(const uint32_t *)right);
    return 0;
}
