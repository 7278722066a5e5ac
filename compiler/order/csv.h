#ifndef ORDER_CSV_H
#define ORDER_CSV_H

/* A compute order, with or without communication, in the text form of torch.distributed.pipelining: one row per rank,
   cells separated by commas, an empty cell is idle time. Cells: <stage><F|B|I|W><microbatch>, (<F>;<B or
   I>)OVERLAP_F_B, (<F>;<F>)OVERLAP_F_F, <stage><SEND_F|RECV_F|SEND_B|RECV_B><microbatch>, <stage>U<version>; an F may
   name its version of the weights, 3F2v1. A pass of another pipe than 0 starts with its pipe, p1:3F2. Cells that only
   PyTorch needs are skipped: <stage><UNSHARD|RESHARD|REDUCE_GRAD|WAIT_REDUCE_GRAD>,
   <stage><WAIT_SEND_F|WAIT_SEND_B><microbatch>. */

#include "compiler/schedule/schedule.h"

/* Reads the orders of all ranks. Pipes, stages and placement follow from the cells. A pipe has as many microbatches as
   its passes have different numbers. False, with diagnostics: the rows are wrong in themselves. For example, a cell is
   not understood, a row is empty, a stage has no pass, or passes of one stage and microbatch are on two ranks.
   prove_passes checks the orders. */
bool csv_read(const Source *source, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
