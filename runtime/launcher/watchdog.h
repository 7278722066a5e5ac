#ifndef LAUNCHER_WATCHDOG_H
#define LAUNCHER_WATCHDOG_H

/* Ranks as threads of this process, watched: the first failure ends all of them, and so does a standstill. */

#include "runtime/base/progress.h"
#include "runtime/base/status.h"

#include <stdbool.h>

typedef struct WatchedRank {
    void *rank; /* for the functions below */
    const Progress *progress;
} WatchedRank;

typedef struct RankThreads {
    const WatchedRank *ranks;
    int count;
    Status (*work)(void *rank, Error *error);
    void (*abort)(void *rank, const char *reason); /* ends the run on all ranks; any thread calls it */
    ProgressWords words;
    double deadline; /* seconds in which some rank has to move; <= 0: no limit */
} RankThreads;

/* Runs `work` for each rank in a thread of its own until all have come back. The first failure ends the other ranks and
   is the one returned. *stuck: a rank never came back; its thread still uses the ranks, their progress and the program.
   */
Status watchdog_run(const RankThreads *threads, bool *stuck, Error *error);

#endif
