#ifndef LAUNCHER_FATAL_H
#define LAUNCHER_FATAL_H

/* What ends the process from within a library: a fault, an abort, a call of exit. Most often memory has run out under a
   limit (ulimit -v). dprun then says which rank was at which instruction, and ends like any run that has failed. */

#include "runtime/base/progress.h"
#include "runtime/base/status.h"

/* From now on a fault, an abort or a library's exit ends the process with words and STATUS_RUN_FAILED. Once, before
   other threads are there. */
void fatal_begin(void);
/* main returns: from now on a call of exit is nobody's mistake. */
void fatal_over(void);

/* Runs all of a rank's work in this thread. A fault within it is reported with the rank's place. oneDNN's kernels use
   the stack pointer for other things, so the handler has a stack of its own and does not return. */
Status fatal_run(const Progress *progress, const ProgressWords *words, Status (*work)(void *rank, Error *error),
                 void *rank, Error *error);

#endif
