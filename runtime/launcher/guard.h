#pragma once

/* A rank that is killed cannot report its position, and MPI does not report it either. So the process that mpirun
   started is only a guard: its child does all the work, and writes its position to a page of memory that both share. */

#include "base/progress.h"
#include "base/status.h"

#include <stdbool.h>

/* Forks. Returns false in the child, which runs the rank and writes its position to *progress. Also returns false if no
   guard can be made: this process then runs the rank, and *progress may be unchanged. Returns true in the guard after
   the child has ended; *status is then the exit status to use. If a signal killed the child, or it exited with a status
   above 3, the guard has printed at which instruction. But it prints nothing if it had forwarded a signal to the child,
   and such a signal or SIGKILL then killed the child. `expected_member`: the member to name if the child dies before it
   knows its own. */
bool guard_begin(const ProgressWords *words, int expected_member, Progress **progress, Status *status);
