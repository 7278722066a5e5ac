#include "runtime/transport/transport.h"

#include "runtime/transport/local.h"
#include "runtime/transport/nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
const Transport transports[] = {
    {.name = "local", .host_memory = true, .gpu_memory = true},
    {.name = "mpi", .processes = true, .host_memory = true, .own_deadline = true},
    {.name = "nccl", .gpu_memory = true, .gpu_each = true, .in_order = true, .own_deadline = true,
     .load = nccl_load, .connect = nccl_connect, .abort_rest = nccl_abort_all},
    {.name = "nccl", .processes = true, .gpu_memory = true, .gpu_each = true, .in_order = true, .own_deadline = true,
     .load = nccl_load, .connect = nccl_connect, .abort_rest = nccl_abort_all},
    {0},
};
/* clang-format on */

const Transport *transport_named(const char *name, bool processes)
{
    const Transport *named = NULL;
    for (const Transport *any = transports; any->name; any++)
        if (strcmp(any->name, name) == 0 && (!named || any->processes == processes))
            named = any;
    return named;
}

const Transport *transport_for(bool processes, bool gpu)
{
    const Transport *any = transports;
    while (any->processes != processes || !(gpu ? any->gpu_memory : any->host_memory))
        any++;
    return any;
}

/* The world of processes is in a shared object, dprun-mpi.so, so that dprun starts on machines without MPI. It is in
   the folder of the executable dprun, or in ../lib/dprun relative to that folder. */
static Status load_mpi(const WorldTable **table, Error *error)
{
    /* relative to the folder of the executable: in a build, in an installation */
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
        return error_set(error, STATUS_RUN_FAILED,
                         "no dprun-mpi.so in %.*s, the folder of dprun: run dprun where it was built or installed; if "
                         "it was built without MPI, install libopenmpi-dev and run make all",
                         (int)(name - path), path);
    /* RTLD_GLOBAL, because MPI loads plugins that look up MPI's symbols in the global scope. */
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!plugin)
        return error_set(error, STATUS_RUN_FAILED, "cannot load MPI: %s; is its library installed (openmpi-bin)?",
                         dlerror());
    *table = dlsym(plugin, "world_mpi");
    if (!*table)
        return error_set(error, STATUS_RUN_FAILED, "%s belongs to another build than this dprun: build both again",
                         path);
    return STATUS_OK;
}

Status transport_open(const Transport *transport, const WorldConfig *config, World **members, Error *error)
{
    const WorldTable *table = &world_local;
    if (transport->processes)
        TRY(load_mpi(&table, error));
    if (transport->load)
        TRY(transport->load(error));
    TRY(table->open(config, members, error));
    for (int i = 0; i < config->size; i++) {
        if (!members[i])
            continue;
        if (transport->connect)
            members[i]->connect = transport->connect;
        members[i]->abort_rest = transport->abort_rest;
    }
    return STATUS_OK;
}
