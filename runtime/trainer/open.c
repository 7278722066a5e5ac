/* Opens a rank: device, stages, communicators, executor, and one block of memory for slots, weights and data. */
#include "runtime/trainer/rank.h"

#include "runtime/launcher/launched.h"
#include "runtime/launcher/memory.h"

static bool make_tables(Rank *rank)
{
    const Session *session = rank->session;
    const size_t ranks = (size_t)member_count(rank);
    rank->squares.all =
        rank_table(rank, ranks * session->most_chunks * square_sums(session), sizeof *rank->squares.all);
    rank->squares.host = rank_table(rank, session->most_chunks * square_sums(session), sizeof *rank->squares.host);
    rank->records.own = rank_table(rank, 1, session->record_bytes);
    rank->records.all = rank_table(rank, ranks, session->record_bytes);
    rank->records.losses = rank_table(rank, session->microbatches, sizeof *rank->records.losses);
    rank->records.busy = rank_table(rank, ranks, sizeof *rank->records.busy);
    if (session->piece_bytes) {
        rank->collection.piece = rank_table(rank, 1, session->piece_bytes);
        rank->collection.pieces = rank_table(rank, ranks, session->piece_bytes);
    }
    return rank->squares.all && rank->squares.host && rank->records.own && rank->records.all && rank->records.losses &&
           rank->records.busy && (!session->piece_bytes || (rank->collection.piece && rank->collection.pieces));
}

static int gpu_of(const Rank *rank)
{
    const Transport *transport = rank->session->options->transport;
    return !transport->gpu_each ? 0 : transport->processes ? launched_place_on_machine() : rank->member;
}

static Status open_device(Rank *rank, Error *error)
{
    const Transport *transport = rank->session->options->transport;
    const Status status = device_open(rank->session->device, gpu_of(rank), &rank->device, error);
    if (status != STATUS_OK) {
        error_prefix(error, "%s, ", rank_name(rank).text);
        return status;
    }
    if (rank->device->run->async && !transport->gpu_memory)
        return error_set(error, STATUS_RUN_FAILED, "%s: transport %s cannot transfer the memory of device %s",
                         rank_name(rank).text, transport->name, rank->device->run->name);
    return STATUS_OK;
}

/* Sets up a simulated rank. Nothing is computed, so there are no stages, weights or data. */
static Status simulate(Rank *rank, Error *error)
{
    const RunOptions *options = rank->session->options;
    const Program *program = rank->session->loaded->program;
    PairOrder *orders = rank_table(rank, simulator_orders(program), sizeof *orders);
    if (!orders)
        return rank_no_tables(rank, error);
    rank->simulator = simulator_of(program, rank->number, &options->costs, rank->times.compared, orders);
    rank->stages = simulator_stages;
    if (options->in_turn)
        rank->stages.overlap = NULL;
    simulator_begin();
    return STATUS_OK;
}

static Status compute(Rank *rank, Error *error)
{
    TRY(stages_open(rank, error));
    TRY(placing_open(rank, error));
    rank->stages = rank_stages(rank);
    return STATUS_OK;
}

/* Opens the rank's communicators and its executor. */
static Status open_executor(Rank *rank, Error *error)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const bool simulated = session->options->simulated;
    ChunkPlan plans[PROGRAM_CHUNKS_MAX];
    for (uint32_t c = 0; c < program->ranks[rank->number].chunk_count; c++)
        plans[c] = simulated ? simulator_chunk(program) : stages_plan(rank, c);
    TRY(executor_connect(rank->world, program, expert_members(session), plans, rank->device, &rank->communicators,
                         error));
    const ExecutorConfig config = {
        .loaded = session->loaded,
        .rank = rank->number,
        .stages = &rank->stages,
        .host = simulated ? (void *)&rank->simulator : rank,
        .chunks = plans,
        .pipeline = rank->communicators.pipeline,
        .sums = rank->communicators.sums,
        .sharded_sums = rank->communicators.sharded_sums,
        .device = rank->device,
        .deadline = session->options->deadline,
        .progress = rank->progress,
    };
    TRY(executor_open(&config, &rank->executor, error));
    rank->table_bytes += rank->communicators.bytes + executor_table_bytes(rank->executor);
    return trace_open(rank, error);
}

/* Checks, before any rank touches its memory, that the machine has enough for all its ranks. Without this check the
   kernel would kill a rank without a message. With --overcommit it refuses nothing. A collective of all ranks. */
static Status check_memory(Rank *rank, Error *error)
{
    const uint32_t ranks = (uint32_t)member_count(rank);
    MemoryNeed *needs = rank_table(rank, ranks + 1, sizeof *needs), *own = needs + ranks;
    uint64_t together = 0;
    if (!needs)
        return rank_no_tables(rank, error);
    const MemoryPools pools = memory_pools("");
    *own = memory_need(&pools, rank->memory_bytes + rank->table_bytes);
    TRY(rank_gather(rank, own, sizeof *own, needs, error));
    const MemoryPool *pool = memory_shortage(&pools, needs, ranks, &together);
    if (!pool || rank->session->options->overcommit)
        return STATUS_OK;
    const double gibibyte = 1 << 30;
    return error_set(
        error, STATUS_RUN_FAILED,
        "the memory plan needs %.1f GiB %s%s%s, but only %.1f GiB are free: a smaller model, fewer microbatches or a "
        "schedule with a lower peak need less; --overcommit runs the plan nevertheless",
        (double)together / gibibyte, *pool->name ? "within the limit of control group " : "on this machine", pool->name,
        *pool->name ? " (of a container or a job)" : "", (double)pool->free / gibibyte);
}

static Status open_memory(Rank *rank, Error *error)
{
    Layout layout = {.used = executor_slot_bytes(rank->executor)};
    stages_place(rank, &layout);
    rank->memory_bytes = layout.used;
    if (!rank->device->run->async)
        TRY(check_memory(rank, error));
    const Status status = rank->device->run->allocate(rank->device, rank->memory_bytes, &rank->memory, error);
    if (status != STATUS_OK) {
        error_prefix(error, "%s, allocating the %zu MiB of its memory plan: ", rank_name(rank).text,
                     rank->memory_bytes >> 20);
        return status;
    }
    executor_use_memory(rank->executor, rank->memory);
    layout = (Layout){.base = rank->memory, .used = executor_slot_bytes(rank->executor)};
    stages_place(rank, &layout);
    return STATUS_OK;
}

Status rank_open(Rank *rank, Error *error)
{
    if (!make_tables(rank))
        return rank_no_tables(rank, error);
    TRY(open_device(rank, error));
    TRY((rank->session->options->simulated ? simulate : compute)(rank, error));
    TRY(rank_open_flights(rank, error));
    TRY(open_executor(rank, error));
    TRY(open_memory(rank, error));
    TRY(stages_initialize(rank, error));
    TRY(executor_bind(rank->executor, error));
    TRY(lists_agree(rank, error));
    rank->records.own->planned_bytes = rank->memory_bytes + rank->table_bytes + rank->device->bound_bytes;
    return STATUS_OK;
}

void rank_close(Rank *rank)
{
    executor_close(rank->executor);
    executor_disconnect(&rank->communicators);
    stages_close(rank);
    if (rank->device)
        rank->device->run->deallocate(rank->device, rank->memory);
    device_close(rank->device);
    arena_free(&rank->tables);
}
