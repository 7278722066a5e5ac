#pragma once

/* The messages that a rank sends and the memory that its activations take, in the bytes of the costs. */

#include "compiler/schedule/schedule.h"
#include "program/times/costs.h"

typedef struct RankLoad {
    uint64_t messages; /* number of messages that the rank sends */
    double bytes_sent;
    /* the most that the activations of the rank take at once: memory_I of a stage from F to the end of I or B, memory_W
       from the end of I to the end of W; 0: the costs have neither, or the schedule is forward-only */
    double peak_memory;
} RankLoad;

/* The load of a rank. The orders of the schedule must contain the messages. */
RankLoad rank_load(const Schedule *schedule, const Costs *costs, uint32_t rank);
