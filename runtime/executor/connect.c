/* The communicators of a rank's program. */
#include "runtime/executor/executor.h"

static Status connect_pipeline(World *world, const Program *program, const int *everybody, Device *device,
                               RankCommunicators *made, Error *error)
{
    CommunicatorConfig config = {
        .members = everybody, .count = (int)program->rank_count, .messages_in_flight = 1, .device = device};
    for (uint32_t r = 0; r < program->rank_count; r++) /* each message is in a slot */
        if ((int)program->ranks[r].slots[SLOT_MESSAGE] > config.messages_in_flight)
            config.messages_in_flight = (int)program->ranks[r].slots[SLOT_MESSAGE];
    TRY(world->connect(world, &config, &made->pipeline, error));
    made->bytes += made->pipeline->bytes;
    return STATUS_OK;
}

/* Writes the ranks of the group's members, in their order. Returns the chunk of `rank` that is a member, or -1. */
static int members_of(const Group *group, int rank, int *members)
{
    int chunk = -1;
    for (int i = 0; i < group->member_count; i++) {
        members[i] = group->members[i].rank;
        if (members[i] == rank)
            chunk = group->members[i].chunk;
    }
    return chunk;
}

Status executor_connect(World *world, const Program *program, int rank, const ChunkPlan *chunks, Device *device,
                        RankCommunicators *made, Error *error)
{
    int members[PROGRAM_RANKS_MAX];
    *made = (RankCommunicators){0};
    device = device && device->run->async ? device : NULL;
    for (int r = 0; r < (int)program->rank_count; r++)
        members[r] = r;
    TRY(connect_pipeline(world, program, members, device, made, error));
    for (uint32_t g = 0; g < program->group_count && !program->forward_only; g++) {
        const int chunk = members_of(&program->groups[g], rank, members);
        if (chunk < 0 || !chunks[chunk].weight_gradient)
            continue;
        const CommunicatorConfig config = {
            .members = members,
            .count = program->groups[g].member_count,
            .number = 1 + (int)g,
            .sum_elements = chunks[chunk].weight_gradient,
            .sum_size = chunks[chunk].element,
            .device = device,
        };
        TRY(world->connect(world, &config, &made->sums[chunk], error));
        made->bytes += made->sums[chunk]->bytes;
    }
    return STATUS_OK;
}

void executor_disconnect(RankCommunicators *communicators)
{
    for (int c = 0; c < PROGRAM_CHUNKS_MAX; c++)
        if (communicators->sums[c])
            communicators->sums[c]->run->close(communicators->sums[c]);
    if (communicators->pipeline)
        communicators->pipeline->run->close(communicators->pipeline);
    *communicators = (RankCommunicators){0};
}
