/* Ranks that are threads of one process: the library carries their messages and sums. */

#include "library/internal.h"

#include "runtime/transport/local.h"

/* --- the threads of a program --- */

typedef struct Gathering {
    const dps_program *program;
    double deadline;
    dps_threads **made;
} Gathering;

static Status threads_body(dps *d, void *arguments)
{
    const Gathering *gathering = arguments;
    if (!(gathering->deadline >= 0))
        return error_set(&d->error, STATUS_BAD_USAGE, "dps_threads_new: a deadline of %g s; it must be 0 or more",
                         gathering->deadline);
    const Program *program = gathering->program->compilation.program;
    dps_threads *const threads = d->threads = host_new(d, sizeof *threads);
    threads->memory = d->memory;
    threads->program = program;
    threads->joined = host_new(d, program->rank_count * sizeof *threads->joined);
    threads->sums = host_new(d, program->stages * sizeof *threads->sums);
    threads->members = host_new(d, program->rank_count * sizeof(World *));
    const WorldConfig config = {.size = (int)program->rank_count, .deadline = gathering->deadline};
    if (world_local.open(&config, threads->members, &d->error) != STATUS_OK)
        longjmp(d->exhausted, 1);
    d->threads = NULL;
    *gathering->made = threads;
    return STATUS_OK;
}

dps_status dps_threads_new(dps *d, const dps_program *program, double deadline, dps_threads **made)
{
    Gathering request = {program, deadline, made};
    return CALL(d, threads_body, &request, NEEDED(program), RESULT(made));
}

void dps_threads_free(dps_threads *threads)
{
    if (!threads)
        return;
    const MemoryFunctions memory = threads->memory;
    for (uint32_t r = 0; threads->members && r < threads->program->rank_count; r++)
        if (threads->members[r])
            threads->members[r]->run->close(threads->members[r]);
    host_release(&memory, threads->members);
    host_release(&memory, (void *)threads->joined);
    host_release(&memory, (void *)threads->sums);
    host_release(&memory, threads);
}

/* --- a rank joins the threads --- */

static Status join_threads(dps_rank *rank, dps_threads *threads, const dps_buffers *buffers)
{
    const uint32_t number = rank->walk.rank, chunks = rank->own.chunk_count, slots = rank->own.slots[SLOT_MESSAGE];
    ChunkPlan plans[PROGRAM_CHUNKS_MAX];
    Exchange *const exchange = &rank->exchange;
    exchange->messages = arena_array(&rank->arena, slots, sizeof *exchange->messages);
    exchange->sums = arena_array(&rank->arena, chunks, sizeof *exchange->sums);
    if (!exchange->messages || !exchange->sums)
        return error_set(&rank->error, STATUS_RUN_FAILED, "rank %u: no memory for the tables of its messages and sums",
                         number);
    for (uint32_t i = 0; i < slots; i++)
        exchange->messages[i].block = &buffers->messages[i];
    for (uint32_t c = 0; c < chunks; c++)
        plans[c] = (ChunkPlan){.weight_gradient = buffers->gradients ? buffers->elements[c] : 0,
                               .element = buffers->element_bytes};
    TRY(executor_connect(threads->members[number], rank->walk.program, 1, plans, NULL, &rank->communicators,
                         &rank->error));
    exchange->pipeline = rank->communicators.pipeline;
    for (uint32_t c = 0; c < chunks; c++)
        exchange->sums[c] = (ExchangeSum){.among = rank->communicators.sums[c],
                                          .buffer = buffers->gradients ? buffers->gradients[c] : NULL,
                                          .elements = plans[c].weight_gradient,
                                          .size = plans[c].element};
    rank->threads = threads;
    return STATUS_OK;
}

/* Whether the gradients of this rank fit: for each chunk whose stage has several copies, the first copy that called
   dps_join has the same number and size of elements. If this rank is the first, stores number and size for the other
   copies. */
static bool sums_agree(const dps_rank *rank, dps_threads *threads, const dps_buffers *buffers)
{
    for (uint32_t c = 0; c < rank->own.chunk_count; c++) {
        const uint16_t stage = rank->own.chunks[c].stage;
        const uint64_t own = buffers->gradients ? 16 * (uint64_t)buffers->elements[c] + buffers->element_bytes : 1;
        uint64_t first = 0;
        if (program_group(threads->program, stage) &&
            !atomic_compare_exchange_strong(&threads->sums[stage], &first, own) && first != own)
            return false;
    }
    return true;
}

static const char *refusal(const dps_rank *rank, dps_threads *threads, const dps_buffers *buffers)
{
    if (rank->state != RANK_BETWEEN_STEPS || rank->threads)
        return "dps_join: this rank has joined threads already, or its step has begun";
    if (rank->walk.program != threads->program)
        return "dps_join: these threads run another program: make threads for this one with dps_threads_new";
    if (!buffers->messages && rank->own.slots[SLOT_MESSAGE])
        return "dps_join: dps_buffers has no `messages`, but this rank has message slots";
    if (buffers->gradients && (!buffers->elements || (buffers->element_bytes != 4 && buffers->element_bytes != 8)))
        return "dps_join: dps_buffers has gradients: set `elements` too, and set `element_bytes` to 4 or 8";
    if (!sums_agree(rank, threads, buffers))
        return "dps_join: another copy of a stage of this rank has other `elements` or `element_bytes`: all copies "
               "need the same";
    return NULL;
}

dps_status dps_join(dps_rank *rank, dps_threads *threads, const dps_buffers *given)
{
    dps_buffers buffers;
    const char *why =
        "dps_join: dps_buffers is NULL, its `size` is 0, or it sets a member that this libdps does not know";
    if (!rank)
        return DPS_BAD_USAGE;
    if (rank->state == RANK_FAILED)
        return rank->failure;
    if (!threads)
        why = "dps_join: `threads` is NULL";
    else if (STRUCT_IN(&buffers, given))
        why = refusal(rank, threads, &buffers);
    if (why)
        return rank_refuse(rank, why);
    if (atomic_exchange(&threads->joined[rank->walk.rank], true))
        return rank_refuse(rank, "dps_join: this rank of the program has joined these threads already");
    if (join_threads(rank, threads, &buffers) == STATUS_OK)
        return DPS_OK;
    world_abort(threads->members[rank->walk.rank], rank->error.text);
    executor_disconnect(&rank->communicators);
    rank->state = RANK_FAILED;
    return rank->failure = DPS_NO_MEMORY;
}

void threads_abort(dps_rank *rank)
{
    if (rank->threads)
        world_abort(rank->threads->members[rank->walk.rank], rank->error.text);
}

void threads_leave(dps_rank *rank) { executor_disconnect(&rank->communicators); }

dps_status dps_gather(dps_rank *rank, const void *mine, size_t bytes, void *all)
{
    if (!rank)
        return DPS_BAD_USAGE;
    if (rank->state == RANK_FAILED)
        return rank->failure;
    if (!rank->threads)
        return rank_refuse(rank, "dps_gather: the rank has joined no threads: call dps_join first");
    if (bytes && (!mine || !all))
        return rank_refuse(rank, "dps_gather: `mine` or `all` is NULL");
    if (bytes > PTRDIFF_MAX / rank->threads->program->rank_count)
        return rank_refuse(rank, "dps_gather: `bytes` of all ranks together are more than memory can hold");
    World *const world = rank->threads->members[rank->walk.rank];
    if (world->run->gather(world, mine, bytes, all, &rank->error) == STATUS_OK)
        return DPS_OK;
    dps_reason(rank, rank->error.text);
    return DPS_FAILED;
}
