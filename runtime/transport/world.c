#include "runtime/transport/world.h"

#include <stdio.h>

void world_init(World *world, const WorldTable *run, const WorldConfig *config, int number)
{
    world->run = run;
    world->config = *config;
    world->number = number;
    world->connect = run->connect;
}

void world_abort(World *world, const char *reason)
{
    world->run->abort(world, reason);
    if (world->abort_rest)
        world->abort_rest();
}

static int process_of(const WorldConfig *config, int member)
{
    int process = config->map ? 0 : member;
    while (config->map && config->map[process] != member)
        process++;
    return process;
}

bool world_linked(const WorldConfig *config, int from, int to)
{
    return config->link.given && link_connects(&config->link, process_of(config, from), process_of(config, to));
}

Mesh world_mesh(const WorldConfig *config)
{
    const int replicas = config->replicas ? config->replicas : 1;
    return (Mesh){.ranks = config->size / replicas, .replicas = replicas};
}

MemberName world_member_name(const WorldConfig *config, int member) { return mesh_name(world_mesh(config), member); }

Status world_no_answer(const World *world, int member, double seconds, Error *error)
{
    const char *option = world->config.deadline_option;
    return error_set(error, STATUS_RUN_FAILED, "no answer from %s within %g s%s%s%s",
                     world_member_name(&world->config, member).text, seconds, option ? " (" : "", option ? option : "",
                     option ? ")" : "");
}

void world_ending(const World *world, const char *reason, char *text, size_t size)
{
    snprintf(text, size, "%s ended the run: %s", world_member_name(&world->config, world->number).text, reason);
}
