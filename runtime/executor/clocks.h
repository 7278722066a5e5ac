#ifndef EXECUTOR_CLOCKS_H
#define EXECUTOR_CLOCKS_H

/* One clock for all ranks. Those of one machine share theirs. Where there are several machines, rank 0 is asked for the
   time, many times, and the first rank of each machine believes the answer that came back soonest: it lies in the
   middle of the question's way, with an error of at most half of that way (Cristian 1989). Asked at the beginning and
   at the end of the run, clocks that go at different speed are corrected between the two. */

#include "runtime/transport/world.h"

#include <stdbool.h>
#include <stdint.h>

/* How far a rank's clock was ahead of rank 0's when it said `at`; ns. */
typedef struct ClockSample {
    int64_t at, ahead;
} ClockSample;

/* A collective of all ranks. *processors: how many may compute the passes of all ranks, 0 where that is not known or,
   `computes` being false, others do it. */
Status clocks_compare(World *world, bool computes, ClockSample *sample, uint32_t *processors, Error *error);
/* A rank's time as rank 0's clock has it, by the comparisons before and after it; the second may be missing. */
int64_t clock_common(const ClockSample compared[2], int64_t own);

#endif
