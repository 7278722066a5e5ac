#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline bool mpirun_is_there(void) { return system("command -v mpirun >/dev/null 2>&1") == 0; }

/* The LSAN_OPTIONS with which LSan ignores what Open MPI leaks. */
#define OPENMPI_LEAKS "suppressions=tests/transport/openmpi.supp:fast_unwind_on_malloc=0:print_suppressions=0"

/* For a shell's command line: mpirun with more ranks than processors, which ends a failed job at once instead of after
   seconds. LSan ignores what Open MPI leaks, unless LSAN_OPTIONS is set already.
   mpirun ignores SIGPIPE here: while Open MPI 4.1 ends, it writes to ranks that are gone, is killed by the signal, and
   returns 141 instead of the rank's status. Its ranks have the default action. */
#define MPIRUN                                                                 \
    "env --ignore-signal=PIPE LSAN_OPTIONS=${LSAN_OPTIONS:-" OPENMPI_LEAKS "}" \
    " mpirun --oversubscribe --mca odls_base_sigkill_timeout 0"
static inline const char *mpirun_command(void) { return geteuid() == 0 ? MPIRUN " --allow-run-as-root" : MPIRUN; }

/* dprun looks for the MPI transport in the folder of the program that runs, so this makes a link there. Writes the path
   of this program to `program`, and that of the link to `link`. False: it failed. */
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
