/* Communicators between processes: messages. Each communicator has its own tags. */
#include "runtime/transport/mpi.h"

#include "runtime/base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { POKE_NANOSECONDS = 5000 }; /* the shortest time between two calls of progress that do something */

/* Message.request holds the MPI_Request, which is a pointer in some MPIs and a number in others. */
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits into the message");

static Status post(Communicator *communicator, bool is_send, Message *message, Error *error)
{
    MpiCommunicator *side = (MpiCommunicator *)communicator;
    MPI_Request request;
    TRY(mpi_start(side->world, is_send, side->tag, *message->block, message->bytes,
                  communicator->members[message->peer], &request, error));
    memcpy(&message->request, &request, sizeof request);
    return STATUS_OK;
}

static Status mpi_send(Communicator *communicator, Message *message, Error *error)
{
    return post(communicator, true, message, error);
}

static Status mpi_receive(Communicator *communicator, Message *message, Error *error)
{
    return post(communicator, false, message, error);
}

static Status mpi_wait(Communicator *communicator, Message *message, Error *error)
{
    MpiWorld *world = ((MpiCommunicator *)communicator)->world;
    MPI_Request request;
    memcpy(&request, &message->request, sizeof request);
    const Status status = mpi_await(world, &request, communicator->members[message->peer], error);
    memcpy(&message->request, &request, sizeof request);
    return status;
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
    free(side->requests);
    free(side->parts);
    free(side->received);
    free(side->exchanging);
    free(side->pieces);
    free(side->communicator.members);
    free(side);
}

/* Frees nothing after a failure: MPI may send from this memory until the process exits. */
static void disconnect(Communicator *communicator)
{
    if (!mpi_is_leaving())
        free_side((MpiCommunicator *)communicator);
}

static const CommunicatorTable table = {
    .send = mpi_send,
    .receive = mpi_receive,
    .wait = mpi_wait,
    .sum_post = mpi_sum_post,
    .sum_wait = mpi_sum_wait,
    .all_to_all_post = mpi_all_to_all_post,
    .all_to_all_wait = mpi_all_to_all_wait,
    .progress = progress,
    .close = disconnect,
};

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
        return error_set(error, STATUS_RUN_FAILED, "no memory to connect %d ranks", config->count);
    side->world = world;
    side->tag = TAG_COMMUNICATORS + TAGS_EACH * config->number;
    Status status = communicator_init(&side->communicator, &table, base, config, error);
    if (status == STATUS_OK && side->tag + TAGS_EACH > most_tags(world))
        status = error_set(error, STATUS_RUN_FAILED, "this MPI has no tags for %d communicators", config->number + 1);
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
