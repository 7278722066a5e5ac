#pragma once

/* SIGINT, SIGTERM and SIGUSR1: once steps run, the first signal ends the run after the current step. A second SIGINT or
   SIGTERM, if it comes 0.3 seconds later or more, ends the process at once. */

#include <stdatomic.h>
#include <stdbool.h>

/* From now on handles SIGINT, SIGTERM and SIGUSR1; the first signal sets *stop, or ends the process at once as
   signals_end_steps says. Call it once, before other threads exist. `processes`: this is one of several processes under
   mpirun. */
void signals_begin(atomic_bool *stop, bool processes);
/* From now on the first signal ends the run after a step. Before this call a signal ends the process at once; but under
   mpirun it sets *stop from the beginning. */
void signals_end_steps(void);
