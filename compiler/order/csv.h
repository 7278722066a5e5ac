#ifndef ORDER_CSV_H
#define ORDER_CSV_H

/* A compute order, with or without communication, in the text form of torch.distributed.pipelining: a row a rank, cells
   separated by commas, an empty cell is idle time. Cells: <stage><F|B|I|W><microbatch>, (<F>;<B or I>)OVERLAP_F_B,
   <stage><SEND_F|RECV_F|SEND_B|RECV_B><microbatch>; with several pipes each pass has its pipe in front, p1:3F2.
   PyTorch's cells for what goes by itself here are passed over: <stage><UNSHARD|RESHARD|REDUCE_GRAD|WAIT_REDUCE_GRAD>,
   <stage><WAIT_SEND_F|WAIT_SEND_B><microbatch>. */

#include "compiler/schedule/schedule.h"

/* Pipes, stages and placement are what the cells say; a pipe has as many microbatches as it has different numbers.
   False, with diagnostics, when a cell is not understood or a stage is on two ranks; the order itself is checked by
   prove_passes. */
bool csv_read(const Source *source, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);

#endif
