#ifndef LAUNCHER_GUARD_H
#define LAUNCHER_GUARD_H

/* A rank that is killed cannot say where it was, and MPI does not tell the others. So the process that mpirun started
   only guards: its child does all the work and keeps its place in a page of memory that both share. */

#include "runtime/base/progress.h"
#include "runtime/base/status.h"

#include <stdbool.h>

/* Returns false in the child, which goes on and writes *progress; also, with *progress NULL, where there can be no
   guard. Returns true in the guard when the child has ended, with the status to exit with; if the child was killed the
   guard has said on standard error at which instruction. `expected_rank`: which rank this process will be. */
bool guard_begin(const ProgressWords *words, int expected_rank, Progress **progress, Status *status);

#endif
