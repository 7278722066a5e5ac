#ifndef SCHEDULE_RANK_LOAD_H
#define SCHEDULE_RANK_LOAD_H

/* What a rank sends and holds, in the bytes of the costs. */

#include "compiler/schedule/schedule.h"
#include "runtime/program/costs.h"

typedef struct RankLoad {
    uint64_t messages; /* sent by the rank */
    double bytes_sent;
    double peak_memory; /* the most that its microbatches hold at once: memory_I of a stage from F to the end of I or
                           B, memory_W from then to the end of W */
} RankLoad;

/* The load of a rank. The orders of the schedule must contain the messages. */
RankLoad rank_load(const Schedule *schedule, const Costs *costs, uint32_t rank);

#endif
