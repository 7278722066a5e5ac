#ifndef COMPILER_TIMELINE_H
#define COMPILER_TIMELINE_H

/* When every pass runs, if each takes its modelled time and starts as soon as its rank is free and what it needs is there. */

#include "compiler/passes.h"
#include "runtime/base/status.h"

/* Times of passes in any one unit, and the latency of a message between two ranks (none on the same rank). */
typedef struct Costs {
    double forward, input, weight;
    double backward; /* < 0: input + weight */
    double overlap;  /* of an F&B; < 0: forward + backward. An F&I takes its share of it */
    double message;
    const double *const *measured; /* [rank][position]: times of single passes, instead of the above; NULL: none. An F&B
                                      takes the sum of its halves */
} Costs;

extern const Costs costs_unit; /* F = I = W = 1, B = I + W, FB = F + B, comm = 0 */

/* `assignments` as in --cost: F=2,I=1.5,comm=0.1. STATUS_BAD_USAGE names what is wrong. */
Status costs_set(Costs *costs, const char *assignments, Error *error);
double pass_cost(const Costs *costs, uint8_t kind);

/* A rank at a halt: its order cannot go on at `position` (== the order's count: it came to its end). */
typedef struct Timeline {
    double **start, **end; /* [rank][position]; the halves of an F&B share both; messages have none */
    uint32_t *position;    /* [rank]: where each rank's order ended or halted */
    double makespan;       /* from the first start, which is 0, to the last end */
} Timeline;

/* False when ranks wait for each other in a circle; `position` then says where each one halts. Linear. */
bool timeline_run(const Schedule *schedule, const PassTable *table, const Costs *costs, Arena *arena, Timeline *timeline);

/* What `--emit=stats` says of a rank. */
typedef struct RankTimes {
    double start, end, busy;
} RankTimes;
RankTimes timeline_rank(const Schedule *schedule, const Timeline *timeline, uint32_t rank);

#endif
