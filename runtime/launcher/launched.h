#pragma once

/* What the environment and the system say about the processes that mpirun (or srun) has started together. */

#include <stddef.h>

/* How many processes mpirun (or srun) has started together; 0: this process was started alone. */
int launched_processes(void);
/* The number of this process among the processes that were started together, from 0; -1: it was started alone. */
int launched_number(void);
/* The number of this process among those on this machine, from 0; 0 if it was started alone. */
int launched_place_on_machine(void);
/* Writes the name of a process, such as "rank 2", into `text`. */
typedef void LaunchedName(const void *context, int process, char *text, size_t size);
/* Writes which processes of the run are stopped or have ended, as far as this can be seen on this machine: ": rank 2 is
   stopped (process 4711), rank 3 has ended"; "" if none is, or if mpirun is not that of OpenMPI. */
void launched_missing(LaunchedName *name, const void *context, char *text, size_t size);
/* Waits until mpirun (or srun) has read everything that this process has printed, at most two seconds. Standard output
   and error are pipes to mpirun; if it ends a run, it drops what is still in these pipes. */
void launched_await_reader(void);
