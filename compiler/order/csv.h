#pragma once

/* Reads an order, with or without messages, in the text form of torch.distributed.pipelining: one row per rank, cells
   separated by commas; an empty cell is idle time. A cell may be in quotes (csv_cell.h). The cells are

     <stage><F|B|I|W><microbatch>                             a pass; an F may name its version of the weights: 3F2v1
     (<F>;<B or I>)OVERLAP_F_B, (<F>;<F>)OVERLAP_F_F          an F&B (or F&I), an F&F
     <stage><SEND_F|RECV_F|SEND_B|RECV_B><microbatch>         one end of a message
     <stage>U<version>                                        an update

   In a pipe other than 0 they start with the pipe: p1:3F2. Cells that only PyTorch needs (torch_cells.h) are checked,
   but are no actions of the schedule.

   An order may also have the text form of Primus (source_is_primus): the row of rank 0 begins with "Rank 0: ", and a
   cell names the microbatch and the chunk of the rank, as (F|0|1). BW is a B, B an I; SF, RF, SB and RB are messages;
   O and R are skipped. Chunk c of rank r is stage c * ranks + r or, with two chunks in a V, chunk 1 is stage
   2 * ranks - 1 - r. */

#include "compiler/schedule/schedule.h"

/* Reads the orders of all ranks. Pipes, stages and placement follow from the cells. The number of microbatches of a
   pipe is the number of different microbatches of its passes. False, with diagnostics: the file is wrong in itself. For
   example, a cell is not understood, a row is empty, a stage has no pass, or passes of one stage and microbatch are on
   two ranks. Whether the orders are right is checked later, by prove_passes and the other proofs. */
bool csv_read(const Source *source, Arena *arena, Diagnostics *diagnostics, Schedule *schedule);
