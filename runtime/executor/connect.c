/* The communicators of a member: of its pipeline, and of the copies of its stages. */
#include "runtime/executor/executor.h"

/* One member's side of a connection. */
typedef struct Joining {
    World *world;
    const Program *program;
    Mesh mesh;
    int rank, replica;
    Device *device;
    int *members; /* [all members of the world] */
    RankCommunicators *made;
} Joining;

static Status connect_pipeline(const Joining *joining, Error *error)
{
    const Program *program = joining->program;
    CommunicatorConfig config = {
        .members = joining->members, .count = joining->mesh.ranks, .messages_in_flight = 1, .device = joining->device};
    for (uint32_t r = 0; r < program->rank_count; r++) {
        joining->members[r] = mesh_member(joining->mesh, (int)r, joining->replica);
        if ((int)program->ranks[r].slots[SLOT_MESSAGE] > config.messages_in_flight) /* each message is in a slot */
            config.messages_in_flight = (int)program->ranks[r].slots[SLOT_MESSAGE];
    }
    TRY(joining->world->connect(joining->world, &config, &joining->made->pipeline, error));
    joining->made->bytes += joining->made->pipeline->bytes;
    return STATUS_OK;
}

/* Writes the members that hold a copy of the chunk's stage: replica after replica, in the order of the stage's group.
   Returns how many they are. */
static int find_copies(const Joining *joining, uint32_t stage)
{
    const Group *group = program_group(joining->program, stage);
    int count = 0;
    for (int replica = 0; replica < joining->mesh.replicas; replica++)
        for (int i = 0; i < (group ? group->member_count : 1); i++)
            joining->members[count++] =
                mesh_member(joining->mesh, group ? group->members[i].rank : joining->rank, replica);
    return count;
}

static Status connect_sum(const Joining *joining, uint32_t chunk, const ChunkPlan *plan, Error *error)
{
    const uint32_t stage = joining->program->ranks[joining->rank].chunks[chunk].stage;
    const CommunicatorConfig config = {
        .members = joining->members,
        .count = find_copies(joining, stage),
        .number = 1 + (int)stage,
        .sum_elements = plan->weight_gradient,
        .sum_size = plan->element,
        .device = joining->device,
    };
    if (config.count == 1 || !plan->weight_gradient)
        return STATUS_OK;
    TRY(joining->world->connect(joining->world, &config, &joining->made->sums[chunk], error));
    joining->made->bytes += joining->made->sums[chunk]->bytes;
    return STATUS_OK;
}

Status executor_connect(World *world, const Program *program, const ChunkPlan *chunks, Device *device,
                        RankCommunicators *made, Error *error)
{
    int members[PROGRAM_RANKS_MAX];
    const Mesh mesh = world_mesh(&world->config);
    const Joining joining = {
        .world = world,
        .program = program,
        .mesh = mesh,
        .rank = mesh_rank(mesh, world->number),
        .replica = mesh_replica(mesh, world->number),
        .device = device && device->run->async ? device : NULL,
        .members = members,
        .made = made,
    };
    const RankProgram *own = &program->ranks[joining.rank];
    *made = (RankCommunicators){0};
    TRY(connect_pipeline(&joining, error));
    for (uint32_t s = 0; s < program->stages && !program->forward_only; s++) /* the same order on all members */
        for (uint32_t c = 0; c < own->chunk_count; c++)
            if (own->chunks[c].stage == s)
                TRY(connect_sum(&joining, c, &chunks[c], error));
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
