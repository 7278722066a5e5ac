#ifndef SCHEDULE_RANK_LOAD_H
#define SCHEDULE_RANK_LOAD_H

/* What a rank sends and holds, in the bytes that the costs give. */

#include "compiler/schedule/schedule.h"
#include "runtime/program/costs.h"

typedef struct RankLoad {
    uint64_t messages; /* that it sends */
    double bytes_sent;
    double peak_memory; /* most that its microbatches hold at once: memory_I of a stage from F to the end of I or B,
                           memory_W from then to the end of W */
} RankLoad;

/* Of a schedule with its messages. */
RankLoad rank_load(const Schedule *schedule, const Costs *costs, uint32_t rank);

#endif
