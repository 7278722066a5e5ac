#include "runtime/transport/transport.h"

#include "base/plugin.h"
#include "runtime/transport/local.h"

#include <string.h>

/* clang-format off */
const Transport transports[] = {
    {.name = "local", .host_memory = true, .gpu_memory = true},
    {.name = "mpi", .processes = true, .host_memory = true, .own_deadline = true},
    {.name = "nccl", .gpu_memory = true, .gpu_each = true, .in_order = true, .own_deadline = true,
     .library = "transport_nccl"},
    {.name = "nccl", .processes = true, .gpu_memory = true, .gpu_each = true, .in_order = true, .own_deadline = true,
     .library = "transport_nccl"},
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

Status transport_open(const Transport *transport, const WorldConfig *config, World **members, Error *error)
{
    const void *world = &world_local, *library = NULL;
    if (transport->processes)
        TRY(plugin_table(&plugin_mpi, "world_mpi", &world, error));
    if (transport->library)
        TRY(plugin_table(&plugin_cuda, transport->library, &library, error));
    const TransportLibrary *other = library;
    if (other)
        TRY(other->load(error));
    TRY(((const WorldTable *)world)->open(config, members, error));
    for (int i = 0; other && i < config->size; i++)
        if (members[i]) {
            members[i]->connect = other->connect;
            members[i]->abort_rest = other->abort;
        }
    return STATUS_OK;
}
