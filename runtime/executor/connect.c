/* Makes the communicators of a member: among the ranks of its pipeline, among the copies of its stages, and among the
   replicas that divide the experts. */
#include "runtime/executor/executor.h"

/* What a member needs to make its communicators. */
typedef struct Joining {
    World *world;
    const Program *program;
    int shards;
    Mesh mesh;
    int rank, replica;
    Device *device;
    int *members; /* room for all members of the world: the members of the communicator that is made next */
    RankCommunicators *made;
} Joining;

/* Raises the share of the configuration to that of the recipe; NULL: there is none. */
static void raise_share(CommunicatorConfig *config, const Recipe *recipe)
{
    if (!recipe || recipe->share * config->whole < config->share * recipe->whole || !recipe->share)
        return;
    config->share = recipe->share;
    config->whole = recipe->whole;
}

static Status connect_pipeline(const Joining *joining, Error *error)
{
    const Program *program = joining->program;
    CommunicatorConfig config = {
        .members = joining->members, .count = joining->mesh.ranks, .messages_in_flight = 1, .device = joining->device};
    for (uint32_t r = 0; r < program->rank_count; r++) {
        joining->members[r] = mesh_member(joining->mesh, (int)r, joining->replica);
        /* each message in flight has a message slot of its own */
        if ((int)program->ranks[r].slots[SLOT_MESSAGE] > config.messages_in_flight)
            config.messages_in_flight = (int)program->ranks[r].slots[SLOT_MESSAGE];
    }
    raise_share(&config, program->recipes.common);
    for (uint32_t i = 0; i < program->recipes.count; i++)
        raise_share(&config, &program->recipes.own[i].recipe);
    TRY(joining->world->connect(joining->world, &config, &joining->made->pipeline, error));
    joining->made->bytes += joining->made->pipeline->bytes;
    return STATUS_OK;
}

/* Writes to joining->members the members that hold a copy of the stage: replica after replica, in the order of the
   stage's group. With `shards` > 1 only those that hold the same shard as this member. Returns their number. */
static int find_copies(const Joining *joining, uint32_t stage, int shards)
{
    const Group *group = program_group(joining->program, stage);
    int count = 0;
    for (int replica = joining->replica % shards; replica < joining->mesh.replicas; replica += shards)
        for (int i = 0; i < (group ? group->member_count : 1); i++)
            joining->members[count++] =
                mesh_member(joining->mesh, group ? group->members[i].rank : joining->rank, replica);
    return count;
}

/* Makes the communicator that sums `elements` numbers over the copies of a stage; `sharded`: only over the copies that
   hold the same shard. Makes none if there is one copy or nothing to sum. */
static Status connect_sum(const Joining *joining, uint32_t stage, bool sharded, const ChunkPlan *plan, size_t elements,
                          Communicator **made, Error *error)
{
    const CommunicatorConfig config = {
        .members = joining->members,
        .count = find_copies(joining, stage, sharded ? joining->shards : 1),
        .number = 1 + (int)(sharded ? joining->program->stages : 0) + (int)stage,
        .sum_elements = elements,
        .sum_size = plan->element,
        .device = joining->device,
    };
    if (config.count == 1 || !elements)
        return STATUS_OK;
    TRY(joining->world->connect(joining->world, &config, made, error));
    joining->made->bytes += (*made)->bytes;
    return STATUS_OK;
}

static Status connect_sums(const Joining *joining, uint32_t chunk, const ChunkPlan *plan, Error *error)
{
    const uint32_t stage = joining->program->ranks[joining->rank].chunks[chunk].stage;
    RankCommunicators *made = joining->made;
    TRY(connect_sum(joining, stage, false, plan, plan->weight_gradient - plan->sharded, &made->sums[chunk], error));
    return connect_sum(joining, stage, true, plan, plan->sharded, &made->sharded_sums[chunk], error);
}

/* Makes the communicator for all-to-alls among the replicas of this rank that together hold all shards; none if there
   is one shard. At most two all-to-alls are in flight: one for each half of an F&B or F&F. */
static Status connect_shards(const Joining *joining, Error *error)
{
    const CommunicatorConfig config = {
        .members = joining->members,
        .count = joining->shards,
        .number = 1 + 2 * (int)joining->program->stages,
        .all_to_alls_in_flight = 2,
        .device = joining->device,
    };
    if (joining->shards == 1)
        return STATUS_OK;
    for (int i = 0; i < joining->shards; i++)
        joining->members[i] =
            mesh_member(joining->mesh, joining->rank, joining->replica - joining->replica % joining->shards + i);
    TRY(joining->world->connect(joining->world, &config, &joining->made->shards, error));
    joining->made->bytes += joining->made->shards->bytes;
    return STATUS_OK;
}

Status executor_connect(World *world, const Program *program, int shards, const ChunkPlan *chunks, Device *device,
                        RankCommunicators *made, Error *error)
{
    int members[PROGRAM_RANKS_MAX];
    const Mesh mesh = world_mesh(&world->config);
    const Joining joining = {
        .world = world,
        .program = program,
        .shards = shards,
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
    /* all members visit the stages in the same order, as making communicators requires */
    for (uint32_t s = 0; s < program->stages && !program->forward_only; s++)
        for (uint32_t c = 0; c < own->chunk_count; c++)
            if (own->chunks[c].stage == s)
                TRY(connect_sums(&joining, c, &chunks[c], error));
    return connect_shards(&joining, error);
}

static void disconnect(Communicator *communicator)
{
    if (communicator)
        communicator->run->close(communicator);
}

void executor_disconnect(RankCommunicators *communicators)
{
    for (int c = 0; c < PROGRAM_CHUNKS_MAX; c++) {
        disconnect(communicators->sums[c]);
        disconnect(communicators->sharded_sums[c]);
    }
    disconnect(communicators->shards);
    disconnect(communicators->pipeline);
    *communicators = (RankCommunicators){0};
}
