#pragma once

/* A time limit for calls that wait for other processes and cannot be cancelled. When it passes, the process exits. */

#include "runtime/transport/world.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct Limit {
    double seconds;
    char words[112]; /* the beginning of the message: what has not happened, such as "not all processes have started" */
    const WorldConfig *who; /* the processes */
    /* private */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watched, over;
} Limit;

/* Starts the limit. The caller has set `seconds`, `words` and `who`. seconds <= 0: there is no limit. */
void limit_begin(Limit *limit);
void limit_end(Limit *limit);
