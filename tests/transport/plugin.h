#ifndef TESTS_TRANSPORT_PLUGIN_H
#define TESTS_TRANSPORT_PLUGIN_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline bool mpirun_is_there(void) { return system("command -v mpirun >/dev/null 2>&1") == 0; }

/* mpirun as a shell starts it: more ranks than processors are allowed, and a job that fails ends at once instead of
   after seconds. mpirun ignores SIGPIPE here: while it ends, Open MPI 4.1 writes to ranks that are gone, dies of the
   signal, and reports status 141 instead of the rank's. Its ranks have the default action. */
static inline const char *mpirun_command(void)
{
    return geteuid() == 0
               ? "env --ignore-signal=PIPE mpirun --allow-run-as-root --oversubscribe --mca odls_base_sigkill_timeout 0"
               : "env --ignore-signal=PIPE mpirun --oversubscribe --mca odls_base_sigkill_timeout 0";
}

/* The MPI transport is looked for beside the program that runs: puts a link there. `program` becomes the path of this
   program, `link` that of the link. False when there is no way. */
static inline bool link_plugin(char program[PATH_MAX], char link[PATH_MAX])
{
    char plugin[PATH_MAX];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    if (!realpath("/proc/self/exe", program) || strlen(program) + sizeof "/dprun-mpi.so" > PATH_MAX)
        return false;
    strcpy(link, program);
    strcpy(strrchr(link, '/'), "/dprun-mpi.so");
    unlink(link);
    if (strlen(build) + sizeof "/dprun-mpi.so" > PATH_MAX)
        return false;
    strcat(strcpy(plugin, build), "/dprun-mpi.so");
    char *target = realpath(plugin, NULL);
    const bool good = target && symlink(target, link) == 0;
    free(target);
    return good;
}

#endif
