#ifndef LAUNCHER_LAUNCHED_H
#define LAUNCHER_LAUNCHED_H

/* What the environment and the system say of the processes that mpirun (or srun) has started together. */

#include <stddef.h>

/* How many they are, of which this is one; 0: it was started alone. */
int launched_processes(void);
/* Which of them this is, from 0; -1: it was started alone. */
int launched_number(void);
/* Which of those on this machine it is, from 0. */
int launched_place_on_machine(void);
/* ": rank 2 is stopped (process 4711), rank 3 has ended" as far as it can be seen on this machine; else "". `name`
   says what a process is called. */
typedef void LaunchedName(const void *context, int process, char *text, size_t size);
void launched_missing(LaunchedName *name, const void *context, char *text, size_t size);
/* Returns when what this process has written is read: standard output and error are pipes to a launcher, and one that
   ends a run drops what is still in them. After two seconds at the latest. */
void launched_await_reader(void);

#endif
