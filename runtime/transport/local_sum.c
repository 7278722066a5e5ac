/* Sums among threads. The last member to post a sum cuts it into units and marks it as ready. Each member that waits,
   for this sum or for anything else, takes the next unit and adds it up for all members.

   With a device, the last member to post enqueues the whole sum, to run after everything that each member had enqueued
   when it posted, and concurrently with later computation. */
#include "runtime/transport/local.h"
#include "runtime/transport/sum.h"

#include "base/clock.h"

enum { UNIT = 8 * SUM_BLOCK }; /* elements */

static void add_unit(const LocalShared *shared, uint64_t unit)
{
    const size_t first = unit * UNIT, end = first + UNIT < shared->elements ? first + UNIT : shared->elements;
    for (size_t start = first; start < end; start += SUM_BLOCK) {
        SumBlock sums;
        const size_t length = end - start < SUM_BLOCK ? end - start : SUM_BLOCK;
        sum_in_order(shared->buffers, shared->count, start, length, shared->size, &sums);
        for (int i = 0; i < shared->count; i++)
            memcpy((char *)shared->buffers[i] + start * shared->size, &sums, length * shared->size);
    }
}

static void wake_members(const LocalCommunicator *side, bool who_waits_for_messages)
{
    LocalMember *members = side->member->local->members;
    for (int i = 0; i < side->communicator.count; i++) {
        LocalMember *member = &members[side->communicator.members[i]];
        local_unpark(member, who_waits_for_messages ? atomic_load(&member->parked) : COLLECTIVE);
    }
}

/* Adds up one unit of the sum that this side has posted. False: the sum is not ready, or no unit is left. */
static bool help(LocalCommunicator *side)
{
    LocalShared *shared = side->shared;
    if (atomic_load(&shared->ready) < side->sum || atomic_load(&shared->next_unit) >= shared->units)
        return false;
    const uint64_t unit = atomic_fetch_add(&shared->next_unit, 1);
    if (unit >= shared->units)
        return false;
    add_unit(shared, unit);
    if (atomic_fetch_add(&shared->finished, 1) + 1 == shared->units)
        wake_members(side, false);
    return true;
}

bool local_sum_help(LocalMember *member)
{
    for (LocalCommunicator *side = member->summing; side; side = side->summing)
        if (help(side))
            return true;
    return false;
}

bool local_sum_has_work(const LocalMember *member)
{
    for (const LocalCommunicator *side = member->summing; side; side = side->summing)
        if (atomic_load(&side->shared->ready) >= side->sum &&
            atomic_load(&side->shared->next_unit) < side->shared->units)
            return true;
    return false;
}

/* Enqueues the sum: adds all buffers into the first member's buffer, then copies this buffer to the others. */
static Status enqueue(LocalCommunicator *side, Error *error)
{
    LocalShared *shared = side->shared;
    Device *device = side->device;
    const DeviceAsync *queues = device->run->async;
    const size_t bytes = shared->elements * shared->size;
    for (int i = 0; i < shared->count; i++)
        TRY(queues->await(device, QUEUE_MESSAGES, shared->given[i], error));
    for (int i = 1; i < shared->count; i++)
        TRY(queues->accumulate(device, QUEUE_MESSAGES, shared->elements, shared->buffers[i], shared->buffers[0],
                               error));
    for (int i = 1; i < shared->count; i++)
        TRY(queues->copy_block(device, QUEUE_MESSAGES, bytes, shared->buffers[0], shared->buffers[i], error));
    shared->summed = side->summed;
    return queues->record(device, QUEUE_MESSAGES, side->summed, error);
}

/* Computes when the sum arrives over the imitated network, with two rounds of transfers: each member gets its slice of
   every other member's buffer, and then sends the sum of these slices to all others. */
static void carry(const LocalCommunicator *side)
{
    LocalShared *shared = side->shared;
    const int *members = side->communicator.members;
    pthread_mutex_lock(&side->member->local->network);
    shared->arrival = clock_nanoseconds();
    for (int round = 0; round < 2; round++) {
        const int64_t ready = shared->arrival;
        for (int pair = 0; pair < shared->count * shared->count; pair++) {
            const int from = pair / shared->count, to = pair % shared->count;
            const size_t length = sum_slice(shared->elements, round ? from : to, shared->count).length;
            const int64_t arrival =
                local_carry(side->member, members[from], members[to], false, ready, length * shared->size);
            shared->arrival = arrival > shared->arrival ? arrival : shared->arrival;
        }
    }
    pthread_mutex_unlock(&side->member->local->network);
}

/* Called by the last member to post a sum. No other member uses the fields that it sets: all members have returned from
   the wait for the previous sum, and they read only `ready` until it is raised. */
static Status make_ready(LocalCommunicator *side, size_t elements, size_t size, Error *error)
{
    LocalShared *shared = side->shared;
    shared->elements = elements;
    shared->size = size;
    shared->units = side->device ? 0 : (elements + UNIT - 1) / UNIT;
    if (side->device)
        TRY(enqueue(side, error));
    if (side->member->local->links)
        carry(side);
    atomic_store(&shared->next_unit, 0);
    atomic_store(&shared->finished, 0);
    atomic_store(&shared->ready, side->sum);
    wake_members(side, true);
    return STATUS_OK;
}

Status local_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    if (communicator->count == 1)
        return STATUS_OK;
    side->sum++;
    side->summing = side->member->summing;
    side->member->summing = side;
    side->shared->buffers[communicator->self] = buffer;
    side->shared->given[communicator->self] = side->given;
    if (side->device)
        TRY(side->device->run->async->record(side->device, QUEUE_COMPUTE, side->given, error));
    return local_arrive(side->shared->posts, communicator->self) ? make_ready(side, elements, size, error) : STATUS_OK;
}

Status local_sum_wait(Communicator *communicator, Error *error)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    LocalShared *shared = side->shared;
    if (communicator->count == 1)
        return STATUS_OK;
    if (!local_await(side->member, &shared->ready, side->sum, COLLECTIVE))
        return local_failure(side->member, communicator->members[local_absent(shared->posts, communicator->self)],
                             error);
    while (help(side))
        ;
    if (!local_await(side->member, &shared->finished, shared->units, COLLECTIVE)) /* other members still add up units */
        return local_failure(side->member, communicator->members[communicator->self == 0], error);
    if (!local_rest(side->member, shared->arrival))
        return local_failure(side->member, communicator->members[communicator->self == 0], error);
    LocalCommunicator **at = &side->member->summing;
    while (*at != side)
        at = &(*at)->summing;
    *at = side->summing;
    if (side->device)
        return side->device->run->async->await(side->device, QUEUE_COMPUTE, shared->summed, error);
    return STATUS_OK;
}
