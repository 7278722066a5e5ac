#ifndef TRANSPORT_LIMIT_H
#define TRANSPORT_LIMIT_H

/* A limit for calls that wait for other processes and cannot be left: when it passes, the process ends within them. */

#include "runtime/transport/world.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct Limit {
    double seconds;
    char words[112];        /* what has not come about */
    const WorldConfig *who; /* the processes */
    /* the limit's own */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watched, over;
} Limit;

/* `seconds`, `words` and `who` are set; seconds <= 0: there is no limit. */
void limit_begin(Limit *limit);
void limit_end(Limit *limit);

/* For waits until a time of clock_nanoseconds. */
void condition_of_monotonic_clock(pthread_cond_t *condition);

#endif
