#pragma once

#include <stdint.h>
#include <time.h>

/* Nanoseconds since an arbitrary moment, the same for every thread and process of the machine; never goes back. */
static inline int64_t clock_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
