#ifndef LAUNCHER_SIGNALS_H
#define LAUNCHER_SIGNALS_H

/* SIGINT, SIGTERM and SIGUSR1: the first one ends the run after its step, a second one ends it at once. */

#include <stdatomic.h>
#include <stdbool.h>

/* Takes these signals from now on. The first one sets *stop. Once, before other threads are there. `processes`: this is
   one of several under mpirun. */
void signals_begin(atomic_bool *stop, bool processes);
/* A step can be ended from now on. Before that a signal ends the process at once, except under mpirun. */
void signals_end_steps(void);

#endif
