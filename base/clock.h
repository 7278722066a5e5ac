#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds since an arbitrary moment, the same for every thread and process of the machine; never goes back. */
static inline int64_t clock_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline struct timespec clock_timespec(int64_t nanoseconds)
{
    return (struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
}

/* Initializes a condition variable. Its timed waits use the clock of clock_nanoseconds. */
static inline void clock_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
