/* Communicators among threads. The k-th send and the k-th receive of a directed pair of members use the same entry of
   their channel. The member that posts first leaves its request there. The member that posts second exchanges the
   blocks of both requests and marks both requests as done. So a transfer copies nothing, and a send ends only after its
   receive was posted: a rendezvous.

   Blocks in a device's memory are copied. The member that posts second enqueues the copy, which runs after both posts,
   and records the end of the copy for the waits of both members. A thread waits for the other member's post, never for
   the device. What is enqueued waits only for what was enqueued before it, so the queues cannot deadlock. */
#include "runtime/transport/local.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct LocalRequest {
    alignas(CACHE_LINE) _Atomic uint64_t done; /* 0, then 1 */
    void *block;
    size_t bytes;
    bool is_send;
    /* of a receive: when the message arrives over the imitated network, in ns; 0: without delay */
    int64_t arrival;
    /* with a device. posted: after this event the copy may use the block; moved: after it the owner may use the block
       again */
    DeviceEvent *posted, *moved;
    LocalMember *owner;
    uint32_t number;    /* from 1 */
    LocalRequest *next; /* in the list of free requests */
};

struct LocalChannel {
    alignas(CACHE_LINE) uint64_t sent;     /* used by the sender */
    alignas(CACHE_LINE) uint64_t received; /* used by the receiver */
    /* Message k uses entry k % capacity. The first of its two posts fills the entry, the second one empties it. The
       entry must be empty when a member posts message k + capacity. It is empty: the capacity is at least the number of
       a member's requests, so this member has waited for at least one of the messages k to k + capacity - 1. Both
       members have posted that message, and because they post in order, also message k. Waits may be in any order. */
    alignas(CACHE_LINE) _Atomic(LocalRequest *) places[];
};

/* --- messages --- */

static LocalChannel *channel_of(LocalShared *shared, int from, int to)
{
    _Atomic(LocalChannel *) *entry = &shared->channels[(size_t)from * (size_t)shared->count + (size_t)to];
    LocalChannel *channel = atomic_load_explicit(entry, memory_order_acquire);
    if (channel)
        return channel;
    const size_t size = sizeof(LocalChannel) + shared->capacity * sizeof(_Atomic(LocalRequest *));
    LocalChannel *made = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!made)
        return NULL;
    memset(made, 0, size);
    if (atomic_compare_exchange_strong(entry, &channel, made))
        return made;
    free(made); /* the other member was faster and has already stored its channel */
    return channel;
}

/* Enqueues the copy of a message. The second of the two members to post calls it. */
static Status enqueue_copy(Device *device, const LocalRequest *request, const LocalRequest *other, Error *error)
{
    const DeviceAsync *queues = device->run->async;
    const LocalRequest *from = request->is_send ? request : other, *to = request->is_send ? other : request;
    TRY(queues->await(device, QUEUE_MESSAGES, from->posted, error));
    TRY(queues->await(device, QUEUE_MESSAGES, to->posted, error));
    TRY(queues->copy_block(device, QUEUE_MESSAGES, to->bytes, from->block, to->block, error));
    TRY(queues->record(device, QUEUE_MESSAGES, from->moved, error));
    return queues->record(device, QUEUE_MESSAGES, to->moved, error);
}

/* Computes when a message arrives over the imitated network. Called by the member that posts second. Only the receive
   waits for the arrival. */
static void carry(const LocalCommunicator *side, LocalRequest *request, LocalRequest *other)
{
    LocalMember *member = side->member;
    const int self = member->world.number, peer = other->owner->world.number;
    pthread_mutex_lock(&member->local->network);
    const int64_t arrival = local_carry(member, request->is_send ? self : peer, request->is_send ? peer : self, false,
                                        clock_nanoseconds(), request->bytes);
    pthread_mutex_unlock(&member->local->network);
    (request->is_send ? other : request)->arrival = arrival;
}

static Status post(LocalCommunicator *side, LocalChannel *channel, uint64_t *posted, Message *message, Error *error)
{
    LocalRequest *request = side->free;
    if (!request)
        return communicator_overrun(&side->communicator, "messages", error);
    side->free = request->next;
    atomic_store_explicit(&request->done, 0, memory_order_relaxed);
    request->block = *message->block;
    request->bytes = message->bytes;
    request->is_send = message->is_send;
    request->arrival = 0;
    message->request = request;
    if (side->device)
        TRY(side->device->run->async->record(side->device, QUEUE_COMPUTE, request->posted, error));
    message->sequence = (*posted)++;

    _Atomic(LocalRequest *) *place = &channel->places[message->sequence & (side->shared->capacity - 1)];
    LocalRequest *other = NULL;
    if (atomic_compare_exchange_strong_explicit(place, &other, request, memory_order_acq_rel, memory_order_acquire))
        return STATUS_OK;
    atomic_store_explicit(place, NULL, memory_order_relaxed);
    if (side->device) {
        TRY(enqueue_copy(side->device, request, other, error));
    } else {
        void *block = other->block;
        other->block = request->block;
        request->block = block;
        if (side->member->local->links)
            carry(side, request, other);
    }
    atomic_store_explicit(&request->done, 1, memory_order_relaxed);
    LocalMember *peer = other->owner;
    const uint32_t cause = other->number;
    atomic_store(&other->done, 1); /* after this store the owner may reuse the request */
    local_unpark(peer, cause);
    return STATUS_OK;
}

static Status local_post(Communicator *communicator, Message *message, Error *error)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    const int self = communicator->self, peer = message->peer;
    LocalChannel *channel = channel_of(side->shared, message->is_send ? self : peer, message->is_send ? peer : self);
    if (channel)
        return post(side, channel, message->is_send ? &channel->sent : &channel->received, message, error);
    return error_set(error, STATUS_NO_MEMORY, "no memory for the queue of messages %s %s",
                     message->is_send ? "to" : "from",
                     world_member_name(&communicator->world->config, communicator->members[peer]).text);
}

static Status local_wait(Communicator *communicator, Message *message, Error *error)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    LocalRequest *request = message->request;
    if (!local_await(side->member, &request->done, 1, request->number) || !local_rest(side->member, request->arrival))
        return local_failure(side->member, communicator->members[message->peer], error);
    *message->block = request->block;
    request->next = side->free;
    side->free = request;
    if (side->device)
        return side->device->run->async->await(side->device, QUEUE_COMPUTE, request->moved, error);
    return STATUS_OK;
}

/* --- making and closing --- */

static void free_shared(LocalShared *shared)
{
    const size_t count = (size_t)shared->count;
    for (LocalCommunicator *side = shared->sides, *next; side; side = next) {
        next = side->next;
        free(side->requests);
        free(side->communicator.members);
        free(side);
    }
    for (size_t i = 0; shared->channels && i < count * count; i++)
        free(shared->channels[i]);
    free(shared->channels);
    free(shared->posts);
    free(shared->buffers);
    free(shared->given);
    free(shared->posted);
    free(shared->states);
    free(shared);
}

static LocalShared *make_shared(const CommunicatorConfig *config)
{
    const size_t count = (size_t)config->count;
    LocalShared *shared = aligned_alloc(CACHE_LINE, sizeof *shared);
    if (!shared)
        return NULL;
    memset(shared, 0, sizeof *shared);
    shared->number = config->number;
    shared->count = config->count;
    shared->capacity = 1;
    while (shared->capacity < 2 * (size_t)config->messages_in_flight)
        shared->capacity *= 2;
    shared->posts = local_barrier(config->count);
    shared->buffers = calloc(count, sizeof *shared->buffers);
    shared->given = calloc(count, sizeof *shared->given);
    shared->channels = config->messages_in_flight ? calloc(count * count, sizeof *shared->channels) : NULL;
    if (shared->posts && shared->buffers && shared->given && (shared->channels || !config->messages_in_flight) &&
        local_all_to_all_prepare(shared, config))
        return shared;
    free_shared(shared);
    return NULL;
}

/* Whether this shared part belongs to the communicator of `config`, and member `self` has not joined it yet. */
static bool expects(const LocalShared *shared, const CommunicatorConfig *config, int self)
{
    bool here = false;
    for (const LocalCommunicator *side = shared->sides; side; side = side->next)
        here |= side->communicator.self == self;
    return !here && shared->number == config->number && shared->count == config->count &&
           memcmp(shared->sides->communicator.members, config->members, (size_t)config->count * sizeof(int)) == 0;
}

/* Joins the shared part that other members have made, or makes one. It tries the oldest part first: members may make
   several communicators with the same number and members, one after the other, and each call must join the oldest part
   that its member has not joined. False: no memory. */
static bool join(Local *local, const CommunicatorConfig *config, LocalCommunicator *side)
{
    pthread_mutex_lock(&local->lock);
    LocalShared **at = &local->communicators;
    while (*at && !expects(*at, config, side->communicator.self))
        at = &(*at)->next;
    if (!*at)
        *at = make_shared(config);
    LocalShared *shared = *at;
    if (shared) {
        shared->users++;
        side->shared = shared;
        side->communicator.bytes += local_all_to_all_bytes(shared);
        side->next = shared->sides;
        shared->sides = side;
    }
    pthread_mutex_unlock(&local->lock);
    return shared != NULL;
}

static Status make_events(LocalCommunicator *side, Error *error)
{
    Device *device = side->device;
    const DeviceAsync *queues = device->run->async;
    TRY(queues->make_event(device, &side->given, error));
    TRY(queues->make_event(device, &side->summed, error));
    for (size_t i = 0; i < side->request_count; i++) {
        TRY(queues->make_event(device, &side->requests[i].posted, error));
        TRY(queues->make_event(device, &side->requests[i].moved, error));
    }
    return STATUS_OK;
}

static void free_events(const LocalCommunicator *side)
{
    const DeviceAsync *queues = side->device->run->async;
    queues->free_event(side->device, side->given);
    queues->free_event(side->device, side->summed);
    for (size_t i = 0; i < side->request_count; i++) {
        queues->free_event(side->device, side->requests[i].posted);
        queues->free_event(side->device, side->requests[i].moved);
    }
}

static void local_disconnect(Communicator *communicator)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    LocalShared *shared = side->shared;
    Local *local = side->member->local;
    if (side->device)
        free_events(side);
    pthread_mutex_lock(&local->lock);
    const bool last = --shared->users == 0;
    LocalShared **at = &local->communicators;
    while (last && *at != shared)
        at = &(*at)->next;
    if (last)
        *at = shared->next;
    pthread_mutex_unlock(&local->lock);
    if (last)
        free_shared(shared);
}

static const CommunicatorTable table = {
    .post = local_post,
    .wait = local_wait,
    .sum_post = local_sum_post,
    .sum_wait = local_sum_wait,
    .all_to_all_post = local_all_to_all_post,
    .all_to_all_wait = local_all_to_all_wait,
    .close = local_disconnect,
};

static bool make_requests(LocalCommunicator *side)
{
    const size_t bytes = side->request_count * sizeof *side->requests;
    side->requests = aligned_alloc(CACHE_LINE, bytes);
    if (!side->requests)
        return bytes == 0;
    memset(side->requests, 0, bytes);
    for (size_t i = side->request_count; i > 0; i--) {
        LocalRequest *request = &side->requests[i - 1];
        request->owner = side->member;
        request->number = (uint32_t)i;
        request->next = side->free;
        side->free = request;
    }
    return true;
}

Status local_connect(World *world, const CommunicatorConfig *config, Communicator **made, Error *error)
{
    LocalMember *member = (LocalMember *)world;
    if (config->device && config->all_to_alls_in_flight)
        return communicator_no_all_to_all("local", error);
    LocalCommunicator *side = calloc(1, sizeof *side);
    if (side) {
        side->member = member;
        side->device = config->device;
        side->request_count = 2 * (size_t)config->messages_in_flight;
    }
    if (!side || communicator_init(&side->communicator, &table, world, config, error) != STATUS_OK ||
        !make_requests(side) || !join(member->local, config, side)) {
        if (side) {
            free(side->requests);
            free(side->communicator.members);
        }
        free(side);
        return communicator_no_memory(world, config->count, error);
    }
    const Status status = side->device ? make_events(side, error) : STATUS_OK;
    if (status == STATUS_OK)
        *made = &side->communicator;
    else
        local_disconnect(&side->communicator);
    return status;
}
