#pragma once

/* One clock for all ranks. The ranks of one machine read the same clock (if their time namespaces differ, they count as
   several machines). If there are several machines, every rank asks rank 0 for the time many times. All ranks of a
   machine use the quickest answer that the lowest rank of the machine got. They assume that rank 0 read its clock
   halfway through that exchange, so the error is at most half the duration of the exchange (Cristian 1989). The trainer
   compares clocks at the beginning of the run, and once more before it writes a trace: with two comparisons,
   clock_common also removes the drift between clocks. */

#include "runtime/transport/world.h"

#include <stdbool.h>
#include <stdint.h>

/* When a rank's own clock showed `at`, its clock was `ahead` of rank 0's clock. Both in ns. */
typedef struct ClockSample {
    int64_t at, ahead;
} ClockSample;

/* Compares the clocks of all ranks. A collective of all ranks. *processors: how many processors may compute the passes
   of all ranks together; 0 if that is unknown, or if `computes` is false on some rank because a GPU or nothing computes
   there. */
Status clocks_compare(World *world, bool computes, ClockSample *sample, uint32_t *processors, Error *error);
/* Converts a time of a rank's own clock to rank 0's clock, by interpolation between two comparisons. compared[1] may be
   all zero; then only the first one is used. */
int64_t clock_common(const ClockSample compared[2], int64_t own);
