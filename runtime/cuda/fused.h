#pragma once

/* Plans a fused launch on the host: the order in which its blocks draw the tiles of a list of operations. */

#include "base/status.h"
#include "runtime/cuda/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

enum { FUSED_RUNS_MOST = 1024, FUSED_BLOCKS_MOST = 1024 };

/* All that the order of a launch's tiles depends on. It contains no pointers, so launches with equal shapes share an
   order. */
typedef struct FusedShapes {
    unsigned count, blocks; /* number of operations; number of thread blocks of the launch */
    struct FusedShape {
        double cost, bytes; /* of a tile: its time without memory traffic, and its memory traffic; see fused_time */
        unsigned tiles, after_count, after[OPERATION_AFTER];
    } of[FUSED_OPERATIONS_MOST];
} FusedShapes;

/* The time that a tile takes, in the unit of fused.c (the time of a byte). `moving`: how many of the launch's `blocks`
   thread blocks compute tiles that are bound by memory and so share its bandwidth, this tile's block included. */
double fused_time(const struct FusedShape *shape, unsigned moving, unsigned blocks);

/* The order in which a launch draws its tiles, computed in advance from what tiles cost. A free block takes a tile of
   the first operation of the list that may begin. So if an operation waits, or its last tiles do not occupy all blocks,
   later operations fill the gap. Operations bound by memory get no more blocks than can use the bandwidth while others
   have products to compute. */
typedef struct FusedPlan {
    FusedShapes shapes;
    unsigned run_count, tickets;
    TileRun runs[FUSED_RUNS_MOST];
} FusedPlan;

/* Fills in `shapes`, and the field `tiles` of every operation. STATUS_RUN_FAILED: there are too many operations, too
   many or no blocks, an operation has too many dependences, or an operation does not come after all operations that it
   depends on. */
Status fused_shapes(Operation *operations, unsigned count, unsigned element_size, unsigned blocks, FusedShapes *shapes,
                    Error *error);
bool fused_same(const FusedShapes *a, const FusedShapes *b);
void fused_plan(const FusedShapes *shapes, FusedPlan *plan);
/* The parameters of a launch of the plan. They point to `operations` and `runs`; `runs` is plan->runs or a copy of it.
   The caller sets the counters. */
Fused fused_table(const FusedPlan *plan, const Operation *operations, const TileRun *runs);
