#ifndef TRANSPORT_LAUNCHED_H
#define TRANSPORT_LAUNCHED_H

#include <stdlib.h>

/* How many processes were started together, of which this is one, by the environment that mpirun (or srun) sets; 0: it was started
   alone. A launcher that starts one process is a launcher too: its user is told that the number is wrong. Slurm alone sets its
   variables in the shell of a job as well, so there it takes a step of several tasks. */
static inline int launched_processes(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}; /* OpenMPI; MPICH and its family, srun --mpi=pmi2 */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return tasks && atoi(tasks) > 1 && getenv("SLURM_PROCID") ? atoi(tasks) : 0;
}

#endif
