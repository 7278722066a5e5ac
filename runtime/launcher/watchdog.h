#pragma once

/* Runs ranks as threads of this process and watches them. The first failure ends all ranks. They also end if no rank
   has made progress for the time of the deadline. */

#include "base/progress.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct WatchedRank {
    void *rank; /* argument of RankThreads.work and RankThreads.abort */
    const Progress *progress;
} WatchedRank;

typedef struct RankThreads {
    const WatchedRank *ranks;
    int count;
    Status (*work)(void *rank, Error *error);
    void (*abort)(void *rank, const char *reason); /* aborts the run on all ranks; called by any thread */
    ProgressWords words;
    /* the run fails if no rank makes progress (reaches another instruction or uses processor time) for this many
       seconds; <= 0: no limit */
    double deadline;
} RankThreads;

/* Runs `work` for each rank in its own thread until all have returned. The first failure ends the other ranks, and is
   returned. *stuck: whether a rank did not return within a second after a failure; its thread then still uses the
   ranks, their progress and the program. */
Status watchdog_run(const RankThreads *threads, bool *stuck, Error *error);
