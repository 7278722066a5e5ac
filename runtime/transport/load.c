#include "runtime/transport/transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Status transport_load_mpi(const Transport **transport, Error *error)
{
    /* a build's, an installation's */
    static const char *const places[] = {"dprun-mpi.so", "../lib/dprun/dprun-mpi.so"};
    enum { PLACES = sizeof places / sizeof *places, LONGEST = sizeof "../lib/dprun/dprun-mpi.so" };
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - LONGEST);
    if (length <= 0)
        return error_set(error, STATUS_RUN_FAILED, "cannot find dprun-mpi.so: /proc/self/exe is not readable");
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    int place = 0;
    for (; place < PLACES; place++) {
        strcpy(name, places[place]);
        if (access(path, R_OK) == 0)
            break;
    }
    if (place == PLACES)
        return error_set(
            error, STATUS_RUN_FAILED,
            "this dprun was built without MPI (no dprun-mpi.so in %.*s): install libopenmpi-dev and build again",
            (int)(name - path), path);
    /* MPI loads components of its own, which look for its symbols in the global scope. */
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!plugin)
        return error_set(error, STATUS_RUN_FAILED, "cannot load MPI: %s; is its library installed (openmpi-bin)?",
                         dlerror());
    *transport = dlsym(plugin, "transport_mpi");
    if (!*transport)
        return error_set(error, STATUS_RUN_FAILED, "%s is not of this dprun: build again", path);
    return STATUS_OK;
}
