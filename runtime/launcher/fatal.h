#ifndef LAUNCHER_FATAL_H
#define LAUNCHER_FATAL_H

/* Endings of the process from within a library: a fault, an abort, a call of exit. Most often memory has run out under
   a limit (ulimit -v). dprun then prints which rank was at which instruction, and exits as any run that has failed. */

#include "runtime/base/progress.h"
#include "runtime/base/status.h"

/* From now on a fault, an abort or a library's exit prints a message and ends the process with STATUS_RUN_FAILED. Call
   it once, before other threads exist. */
void fatal_begin(void);
/* Call it before main returns: from now on a call of exit is expected. */
void fatal_over(void);

/* Runs all of a rank's work in this thread. The message of a fault names the rank and its position. The handler runs on
   its own stack and does not return, because oneDNN's kernels use the stack pointer for other purposes. */
Status fatal_run(const Progress *progress, const ProgressWords *words, Status (*work)(void *rank, Error *error),
                 void *rank, Error *error);

#endif
