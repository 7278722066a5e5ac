#ifndef DEVICE_FUSED_H
#define DEVICE_FUSED_H

/* Makes the tables of fused launches on the host, from a list of operations in the order of an overlap's recipe. */

#include "runtime/base/status.h"
#include "runtime/device/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

enum { FUSED_RUNS_MOST = 1024, FUSED_BLOCKS_MOST = 1024 };

/* All that the order of a launch's tiles depends on. It contains no pointers, so launches with equal shapes share an
   order. */
typedef struct FusedShapes {
    unsigned count, blocks; /* blocks of the launch */
    struct FusedShape {
        double cost, bytes; /* of a tile; see fused_time */
        unsigned tiles, after_count, after[OPERATION_AFTER];
    } of[FUSED_OPERATIONS_MOST];
} FusedShapes;

/* The time that a tile takes while `moving` of the `blocks` blocks, including its own, wait for memory as it does. */
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

/* Also fills in `tiles` of every operation. STATUS_BAD_INPUT: an operation depends on one that is not before it in the
   list. */
Status fused_shapes(Operation *operations, unsigned count, unsigned element_size, unsigned blocks, FusedShapes *shapes,
                    Error *error);
bool fused_same(const FusedShapes *a, const FusedShapes *b);
void fused_plan(const FusedShapes *shapes, FusedPlan *plan);
/* The table points to the operations and to `runs`, which are the plan's or a copy. The caller sets the counters. */
Fused fused_table(const FusedPlan *plan, const Operation *operations, const TileRun *runs);

#endif
