#ifndef DEVICE_FUSED_H
#define DEVICE_FUSED_H

/* Tables of fused launches, on the host: from a list of operations in the order of an overlap's recipe. */

#include "runtime/base/status.h"
#include "runtime/device/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

enum { FUSED_RUNS_MOST = 1024, FUSED_BLOCKS_MOST = 1024 };

/* What the order of a launch's tiles follows from: of the operations no pointer, so that launches have it in common. */
typedef struct FusedShapes {
    unsigned count, blocks; /* blocks of the launch */
    struct FusedShape {
        double cost, bytes; /* of a tile; fused_time */
        unsigned tiles, after_count, after[OPERATION_AFTER];
    } of[FUSED_OPERATIONS_MOST];
} FusedShapes;

/* What a tile takes beside so many blocks, itself among them, that wait for memory as it does. */
double fused_time(const struct FusedShape *shape, unsigned moving, unsigned blocks);

/* That order: a block that is free takes a tile of the first operation of the list that may begin, so that the list is
   the order in which operations are wanted, and an operation that waits, or ends in too few tiles for all blocks, has
   its place filled by those behind it. But what waits for memory is given no more blocks than can use it, while the
   others have products to do. It is worked out beforehand, from what tiles cost: a launch draws them in this order. */
typedef struct FusedPlan {
    FusedShapes shapes;
    unsigned run_count, tickets;
    TileRun runs[FUSED_RUNS_MOST];
} FusedPlan;

/* Fills in `tiles` of every operation, too. An operation may only come after earlier ones of the list:
   STATUS_BAD_INPUT otherwise. */
Status fused_shapes(Operation *operations, unsigned count, unsigned element_size, unsigned blocks, FusedShapes *shapes,
                    Error *error);
bool fused_same(const FusedShapes *a, const FusedShapes *b);
void fused_plan(const FusedShapes *shapes, FusedPlan *plan);
/* The table points at the operations and at `runs`, the plan's or a copy. The counters are the caller's to set. */
Fused fused_table(const FusedPlan *plan, const Operation *operations, const TileRun *runs);

#endif
