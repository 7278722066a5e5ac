#include "runtime/transport/communicator.h"

#include <stdlib.h>
#include <string.h>

Status communicator_init(Communicator *communicator, const CommunicatorTable *run, World *world,
                         const CommunicatorConfig *config, Error *error)
{
    communicator->run = run;
    communicator->world = world;
    communicator->count = config->count;
    communicator->members = malloc((size_t)config->count * sizeof *config->members);
    if (!communicator->members)
        return communicator_no_memory(world, config->count, error);
    memcpy(communicator->members, config->members, (size_t)config->count * sizeof *config->members);
    while (config->members[communicator->self] != world->number)
        communicator->self++;
    return STATUS_OK;
}

Status communicator_no_memory(const World *world, int count, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "%s: no memory for a communicator of %d ranks",
                     world_member_name(&world->config, world->number).text, count);
}

Status communicator_overrun(const Communicator *communicator, const char *what, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "internal error, %s has more %s in flight than it announced",
                     world_member_name(&communicator->world->config, communicator->world->number).text, what);
}

Status communicator_no_all_to_all(const char *transport, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED,
                     "transport %s has no all-to-all for the memory of GPUs: run this model with --device cpu",
                     transport);
}
