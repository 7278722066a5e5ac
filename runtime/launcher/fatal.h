#pragma once

/* Reports a fault, an abort or a call of exit within a library. Most often the cause is that memory has run out under a
   limit (ulimit -v). dprun then prints which rank was at which instruction, and exits with STATUS_RUN_FAILED. */

#include "base/progress.h"
#include "base/status.h"

/* From now on a fault, an abort or a library's exit prints a message and ends the process with STATUS_RUN_FAILED. Call
   it once, before other threads exist. */
void fatal_begin(void);
/* Call it before main returns: from now on a call of exit is expected. */
void fatal_over(void);

/* Calls `work` for a rank in this thread. If it faults, the message names the rank and its position. The signal handler
   runs on a stack of its own and does not return, because oneDNN's kernels use the stack pointer for other purposes. */
Status fatal_run(const Progress *progress, const ProgressWords *words, Status (*work)(void *rank, Error *error),
                 void *rank, Error *error);
