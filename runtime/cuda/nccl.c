/* Messages by NCCL. NCCL runs operations in the order of their stream, and each one blocks the stream until the peer
   runs its part. So this transport is in order: a rank must post messages in the order that was proven, none earlier.
   NCCL runs the messages of a group at the same time. So messages that are posted one after the other form a group:
   none waits until an earlier one has ended. The next wait, sum or call of progress ends the group. */
#include "runtime/cuda/nccl.h"

#include <stdlib.h>

struct NcclFlight {
    const NcclCommunicator *side;
    Message *message;
    DeviceEvent *moved;
    /* next in the list of free entries, or in the list of messages that are posted and not enqueued yet */
    NcclFlight *next;
};

/* --- messages --- */

Status nccl_flush(NcclMember *member, Error *error)
{
    const DeviceAsync *queues = member->device->run->async;
    NcclFlight *first = member->first;
    if (!first)
        return STATUS_OK;
    member->first = NULL;
    member->last = &member->first;
    TRY(nccl_follow(member, QUEUE_MESSAGES, QUEUE_COMPUTE, error));
    TRY(nccl_begin_group(member, error));
    Status status = STATUS_OK;
    for (const NcclFlight *flight = first; status == STATUS_OK && flight; flight = flight->next) {
        const Message *message = flight->message;
        const int peer = flight->side->communicator.members[message->peer];
        status = nccl_add(member, &(NcclTransfer){message->is_send, *message->block, message->bytes, NCCL_BYTES, peer},
                          error);
    }
    TRY(nccl_end_group(member, status, error));
    for (NcclFlight *flight = first; flight; flight = flight->next)
        TRY(queues->record(member->device, QUEUE_MESSAGES, flight->moved, error));
    return STATUS_OK;
}

static Status nccl_post(Communicator *communicator, Message *message, Error *error)
{
    NcclCommunicator *side = (NcclCommunicator *)communicator;
    NcclMember *member = side->member;
    NcclFlight *flight = side->free;
    if (!flight)
        return communicator_overrun(communicator, "messages", error);
    side->free = flight->next;
    flight->message = message;
    flight->next = NULL;
    message->request = flight;
    *member->last = flight;
    member->last = &flight->next;
    return STATUS_OK;
}

static Status nccl_wait(Communicator *communicator, Message *message, Error *error)
{
    NcclCommunicator *side = (NcclCommunicator *)communicator;
    NcclFlight *flight = message->request;
    TRY(nccl_flush(side->member, error));
    flight->next = side->free;
    side->free = flight;
    return side->member->device->run->async->await(side->member->device, QUEUE_COMPUTE, flight->moved, error);
}

static Status nccl_progress(Communicator *communicator, Error *error)
{
    NcclMember *member = ((NcclCommunicator *)communicator)->member;
    World *world = communicator->world;
    int code = NCCL_OK;
    TRY(nccl_flush(member, error));
    TRY(nccl_look(member, &code, error));
    return world->run->progress ? world->run->progress(world, error) : STATUS_OK;
}

/* --- making and closing --- */

static void nccl_disconnect(Communicator *communicator)
{
    NcclCommunicator *side = (NcclCommunicator *)communicator;
    NcclMember *member = side->member;
    if (member) {
        const DeviceAsync *queues = member->device->run->async;
        for (size_t i = 0; side->flights && i < side->flight_count; i++)
            queues->free_event(member->device, side->flights[i].moved);
        queues->free_event(member->device, side->summed);
        nccl_member_give_back(member);
    }
    free(side->flights);
    free(communicator->members);
    free(side);
}

static const CommunicatorTable table = {
    .post = nccl_post,
    .wait = nccl_wait,
    .sum_post = nccl_sum_post,
    .sum_wait = nccl_sum_wait,
    .progress = nccl_progress,
    .close = nccl_disconnect,
};

static Status prepare(NcclCommunicator *side, const CommunicatorConfig *config, Error *error)
{
    Device *device = config->device;
    const DeviceAsync *queues = device->run->async;
    TRY(nccl_member_take(side->communicator.world, config, &side->member, error));
    TRY(queues->make_event(device, &side->summed, error));
    for (size_t i = 0; i < side->flight_count; i++) {
        NcclFlight *flight = &side->flights[i];
        *flight = (NcclFlight){.side = side, .next = side->free};
        TRY(queues->make_event(device, &flight->moved, error));
        side->free = flight;
    }
    TRY(nccl_sum_prepare(side, config->sum_elements, error));
    return nccl_greet(side->member, config->members, config->count, error);
}

static Status nccl_connect(World *world, const CommunicatorConfig *config, Communicator **made, Error *error)
{
    if (config->all_to_alls_in_flight)
        return communicator_no_all_to_all("nccl", error);
    NcclCommunicator *side = calloc(1, sizeof *side);
    if (!side)
        return communicator_no_memory(world, config->count, error);
    side->flight_count = 2 * (size_t)config->messages_in_flight;
    side->flights = calloc(side->flight_count + 1, sizeof *side->flights);
    Status status = communicator_init(&side->communicator, &table, world, config, error);
    if (status == STATUS_OK && !side->flights)
        status = communicator_no_memory(world, config->count, error);
    if (status == STATUS_OK)
        status = prepare(side, config, error);
    if (status == STATUS_OK) {
        *made = &side->communicator;
        return STATUS_OK;
    }
    if (side->member)
        nccl_member_abort(side->member); /* aborts first, because other members may be waiting in NCCL for this one */
    nccl_disconnect(&side->communicator);
    return status;
}

const TransportLibrary transport_nccl = {.load = nccl_load, .connect = nccl_connect, .abort = nccl_abort_all};
