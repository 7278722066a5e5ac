#ifndef DEVICE_FUSED_H
#define DEVICE_FUSED_H

/* Tables of fused launches, on the host: from a list of operations in the order of an overlap's recipe, and the proof that a
   table does every tile once and comes to its end. Of a CUDA launch they know nothing. */

#include "runtime/base/status.h"
#include "runtime/device/kernels/kernels.h"

/* Fills in `tiles` of every operation, and the table: each operation one run, in the order of `operations`, in its queue; all
   in queue 0 where no blocks are `reserved` for queue 1. `runs` takes `count` of them; the table points into it, and at the
   operations. An operation may only come after earlier ones of the list: STATUS_BAD_INPUT otherwise. The counters are the
   caller's to set. */
Status fused_table(Operation *operations, unsigned count, unsigned element_size, unsigned reserved, TileRun *runs, Fused *table,
                   Error *error);

/* Whether every tile is in the table once, tickets have no gap, each queue has a block of the launch's `blocks` to begin with,
   and a single block a queue, drawing in order and waiting for what an operation comes after, does all of it; then any number
   of blocks does (kernels.h). STATUS_BAD_INPUT says where it stops. */
Status fused_check(const Fused *table, unsigned count, unsigned blocks, Error *error);

#endif
