/* Communicators between processes: messages. Each communicator has its own tags. */
#include "runtime/transport/mpi.h"

#include "base/clock.h"

#include <stdlib.h>

/* after a call of progress, further calls do nothing for this time */
enum { POKE_NANOSECONDS = 5000 };

static Status mpi_post(Communicator *communicator, Message *message, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    MpiTransfer *transfer = side->free_message;
    if (!transfer)
        return communicator_overrun(communicator, "messages", error);
    side->free_message = transfer->next;
    message->request = transfer;
    return mpi_start(side->world, message->is_send, side->tag, *message->block, message->bytes,
                     communicator->members[message->peer], transfer, error);
}

static Status mpi_wait(Communicator *communicator, Message *message, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    MpiTransfer *transfer = message->request;
    TRY(mpi_await(side->world, transfer, communicator->members[message->peer], error));
    transfer->next = side->free_message;
    side->free_message = transfer;
    return STATUS_OK;
}

static Status progress(Communicator *communicator, Error *error)
{
    MpiWorld *world = ((MpiCommunicator *)communicator)->world;
    const int64_t now = clock_nanoseconds();
    if (now - world->last_poke < POKE_NANOSECONDS)
        return STATUS_OK;
    world->last_poke = now;
    return mpi_progress(&world->world, error);
}

static void free_side(MpiCommunicator *side)
{
    mpi_all_to_all_remove(side);
    free(side->messages);
    free(side->transfers);
    free(side->parts);
    free(side->received);
    free(side->exchanging);
    free(side->pieces);
    free(side->communicator.members);
    free(side);
}

/* Closes a communicator. After a failure it frees nothing, because MPI may still send from this memory until the
   process exits. */
static void disconnect(Communicator *communicator)
{
    if (!mpi_is_leaving())
        free_side((MpiCommunicator *)communicator);
}

static const CommunicatorTable table = {
    .post = mpi_post,
    .wait = mpi_wait,
    .sum_post = mpi_sum_post,
    .sum_wait = mpi_sum_wait,
    .all_to_all_post = mpi_all_to_all_post,
    .all_to_all_wait = mpi_all_to_all_wait,
    .progress = progress,
    .close = disconnect,
};

static Status prepare_messages(MpiCommunicator *side, const CommunicatorConfig *config, Error *error)
{
    const size_t most = 2 * (size_t)config->messages_in_flight;
    side->messages = calloc(most + 1, sizeof *side->messages);
    if (!side->messages)
        return communicator_no_memory(side->communicator.world, config->count, error);
    for (size_t i = 0; i < most; i++)
        side->messages[i].next = i + 1 < most ? &side->messages[i + 1] : NULL;
    side->free_message = most ? side->messages : NULL;
    return STATUS_OK;
}

static int most_tags(const MpiWorld *world)
{
    int *most = NULL, there = 0;
    MPI_Comm_get_attr(world->members, MPI_TAG_UB, &most, &there);
    return there ? *most : 32767;
}

Status mpi_connect(World *base, const CommunicatorConfig *config, Communicator **made, Error *error)
{
    MpiWorld *world = (MpiWorld *)base;
    MpiCommunicator *side = calloc(1, sizeof *side);
    if (!side)
        return communicator_no_memory(base, config->count, error);
    side->world = world;
    side->tag = TAG_COMMUNICATORS + TAGS_EACH * config->number;
    Status status = communicator_init(&side->communicator, &table, base, config, error);
    if (status == STATUS_OK && side->tag + TAGS_EACH > most_tags(world))
        status = error_set(error, STATUS_RUN_FAILED, "this MPI has too few tags for %d communicators: use another MPI",
                           config->number + 1);
    if (status == STATUS_OK)
        status = prepare_messages(side, config, error);
    if (status == STATUS_OK)
        status = mpi_sum_prepare(side, config, error);
    if (status == STATUS_OK)
        status = mpi_all_to_all_prepare(side, config, error);
    if (status == STATUS_OK)
        *made = &side->communicator;
    else
        free_side(side);
    return status;
}
