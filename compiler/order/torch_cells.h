#pragma once

/* The cells of an order that only PyTorch needs. They are no actions of the schedule, but they must be right:
   <stage><WAIT_SEND_F|WAIT_SEND_B><microbatch>   waits for a SEND, and frees what it sent. After its SEND. If an order
                                                  has such cells, each SEND has one
   <stage><UNSHARD|RESHARD>                       gathers the weights of a stage, or drops what was gathered. If a rank
                                                  has such cells, the stages of its passes are gathered then
   <stage>REDUCE_GRAD                             sums the gradients of a stage over replicas. After its last backward
   <stage>WAIT_REDUCE_GRAD                        waits for this sum. If a rank has such cells, each sum has one before
                                                  the next sum begins */

#include "compiler/schedule/schedule.h"

typedef enum TorchKind {
    TORCH_WAIT_SEND_F,
    TORCH_WAIT_SEND_B,
    TORCH_UNSHARD,
    TORCH_RESHARD,
    TORCH_REDUCE_GRAD,
    TORCH_WAIT_REDUCE_GRAD,
    TORCH_KINDS
} TorchKind;

typedef struct TorchCell {
    TorchKind kind;
    uint32_t stage, microbatch;
    uint32_t position; /* the cell comes before this action of its rank */
    Span span;
} TorchCell;

typedef struct TorchCells {
    TorchCell *cells; /* [count]: in their order */
    uint32_t count;
} TorchCells;

/* Reads a cell. False: it is none of these. */
bool torch_cell_read(const char *begin, const char *end, TorchCell *cell);

/* Checks the cells of all ranks, [ranks], and sets schedule->resident and schedule->send_waits. False, with
   a diagnostic: one is wrong. */
bool torch_cells_check(const TorchCells *ranks, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);
