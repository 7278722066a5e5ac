/* All-to-alls among threads. While a member waits, it moves the pieces between itself and each member that has posted,
   in both directions. Each piece is moved once, by whichever of its two members claims it first. So a wait can end as
   soon as all members have posted, even if other members do not wait yet. */
#include "runtime/transport/local.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

bool local_all_to_all_prepare(LocalShared *shared, const CommunicatorConfig *config)
{
    const size_t count = (size_t)config->count, entries = (size_t)config->all_to_alls_in_flight;
    if (!entries)
        return true;
    shared->all_to_alls = entries;
    shared->posted = aligned_alloc(CACHE_LINE, entries * count * sizeof *shared->posted);
    shared->states = calloc(entries * count * count, sizeof *shared->states);
    if (!shared->posted || !shared->states)
        return false;
    memset(shared->posted, 0, entries * count * sizeof *shared->posted);
    return true;
}

size_t local_all_to_all_bytes(const LocalShared *shared)
{
    return shared->all_to_alls * (sizeof *shared->posted + (size_t)shared->count * sizeof *shared->states);
}

/* The entry of a member for all-to-all `number`. */
static LocalPosted *entry_of(const LocalShared *shared, uint64_t number, int member)
{
    return &shared->posted[number % shared->all_to_alls * (uint64_t)shared->count + (uint64_t)member];
}

/* The state of the piece from member `from` to member `to`: 2 * number - 1 after one of the two has claimed it for
   all-to-all `number`, 2 * number after that member has moved it. */
static _Atomic uint64_t *state_of(const LocalShared *shared, uint64_t number, int from, int to)
{
    const uint64_t count = (uint64_t)shared->count, row = number % shared->all_to_alls * count + (uint64_t)from;
    return &shared->states[row * count + (uint64_t)to];
}

/* Claims a piece for this thread. False: it has been claimed before. */
static bool claim(const LocalShared *shared, uint64_t number, int from, int to)
{
    _Atomic uint64_t *state = state_of(shared, number, from, to);
    uint64_t last = atomic_load(state);
    return last < 2 * number - 1 && atomic_compare_exchange_strong(state, &last, 2 * number - 1);
}

/* Counts a moved piece for one of its two members. When the count is complete, wakes that member. A member has 2 *
   count - 1 pieces: one to and one from each other member, and one to itself. */
static void count_piece(const LocalCommunicator *side, LocalPosted *posted, int member)
{
    const Communicator *communicator = &side->communicator;
    atomic_store(&posted->moved, clock_nanoseconds());
    if (atomic_fetch_add(&posted->done, 1) + 1 == 2 * (uint64_t)communicator->count - 1)
        local_unpark(&side->member->local->members[communicator->members[member]], PIECES);
}

static Status sizes_differ(const Communicator *communicator, int from, int to, size_t sent, size_t received,
                           Error *error)
{
    const WorldConfig *config = &communicator->world->config;
    return error_set(error, STATUS_RUN_FAILED, "%s sends %zu bytes to %s, which expects %zu",
                     world_member_name(config, communicator->members[from]).text, sent,
                     world_member_name(config, communicator->members[to]).text, received);
}

/* Moves a piece unless it was claimed before. Both of its members must have posted. */
static Status move(const LocalCommunicator *side, uint64_t number, int from, int to, Error *error)
{
    if (!claim(side->shared, number, from, to))
        return STATUS_OK;
    LocalPosted *sender = entry_of(side->shared, number, from), *receiver = entry_of(side->shared, number, to);
    const AllToAll *out = &sender->all_to_all, *in = &receiver->all_to_all;
    const size_t bytes = out->send_begins[to + 1] - out->send_begins[to];
    const size_t expected = in->receive_begins[from + 1] - in->receive_begins[from];
    if (bytes != expected)
        return sizes_differ(&side->communicator, from, to, bytes, expected, error);
    if (bytes)
        memcpy((char *)in->receive + in->receive_begins[from], (const char *)out->send + out->send_begins[to], bytes);
    atomic_store(state_of(side->shared, number, from, to), 2 * number);
    count_piece(side, sender, from);
    if (sender != receiver)
        count_piece(side, receiver, to);
    return STATUS_OK;
}

/* The first member that has claimed a piece from or to this member and has not moved it yet. */
static int unfinished(const LocalCommunicator *side, uint64_t number)
{
    const LocalShared *shared = side->shared;
    const int self = side->communicator.self;
    int peer = 0;
    while (peer + 1 < shared->count && atomic_load(state_of(shared, number, self, peer)) >= 2 * number &&
           atomic_load(state_of(shared, number, peer, self)) >= 2 * number)
        peer++;
    return peer;
}

/* Stores the arrival of the pieces in the AllToAll that the member has posted. Without a network the arrival is the
   time at which the last piece was moved. With a network, the last member to post may still be computing the arrival;
   it holds the mutex while it does. */
static void note_arrival(const LocalCommunicator *side, LocalPosted *own)
{
    own->owned->arrival = atomic_load(&own->moved);
    if (!side->member->local->links)
        return;
    pthread_mutex_lock(&side->member->local->network);
    own->owned->arrival = own->arrival;
    pthread_mutex_unlock(&side->member->local->network);
}

/* Waits until all pieces from and to this member are moved. */
static Status finish(LocalCommunicator *side, uint64_t number, Error *error)
{
    const Communicator *communicator = &side->communicator;
    const int self = communicator->self, count = communicator->count;
    LocalPosted *own = entry_of(side->shared, number, self);
    for (int i = 0; i < count; i++) {
        const int peer = (self + i) % count;
        if (!local_await(side->member, &entry_of(side->shared, number, peer)->number, number, PIECES))
            return local_failure(side->member, communicator->members[peer], error);
        TRY(move(side, number, peer, self, error));
        TRY(move(side, number, self, peer, error));
    }
    /* other members still move some of the pieces */
    if (!local_await(side->member, &own->done, 2 * (uint64_t)count - 1, PIECES))
        return local_failure(side->member, communicator->members[unfinished(side, number)], error);
    note_arrival(side, own);
    own->busy = false;
    return STATUS_OK;
}

/* Computes when a piece arrives over the imitated network. The arrival of the receiver's all-to-all is that of its last
   piece. */
static void carry(const LocalCommunicator *side, uint64_t number, int from, int to, int64_t now)
{
    const LocalPosted *sender = entry_of(side->shared, number, from);
    LocalPosted *receiver = entry_of(side->shared, number, to);
    const int *members = side->communicator.members;
    const size_t *begins = sender->all_to_all.send_begins;
    const int64_t arrival =
        local_carry(side->member, members[from], members[to], true, now, begins[to + 1] - begins[to]);
    receiver->arrival = arrival > receiver->arrival ? arrival : receiver->arrival;
}

/* Publishes what this member has posted. Computes the arrivals of the pieces between this member and the members that
   have posted before it. */
static void publish_to_network(LocalCommunicator *side, LocalPosted *posted, uint64_t number)
{
    const int self = side->communicator.self;
    Local *local = side->member->local;
    pthread_mutex_lock(&local->network);
    posted->arrival = 0;
    for (int peer = 0; peer < side->communicator.count; peer++)
        if (peer != self && atomic_load(&entry_of(side->shared, number, peer)->number) == number) {
            const int64_t now = clock_nanoseconds();
            carry(side, number, self, peer, now);
            carry(side, number, peer, self, now);
        }
    atomic_store(&posted->number, number);
    pthread_mutex_unlock(&local->network);
}

/* The entry of the new all-to-all may still be used by an older one, for which this member has not waited. Then this
   member finishes the older one first. For that it needs no post of another member: it has already waited for an
   all-to-all that it posted after the older one. So all members have posted that one, and before it the older one. */
Status local_all_to_all_post(Communicator *communicator, AllToAll *all_to_all, Error *error)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    if (side->all_to_alls_open == side->shared->all_to_alls)
        return communicator_overrun(communicator, "all-to-alls", error);
    LocalPosted *posted = entry_of(side->shared, side->all_to_alls + 1, communicator->self);
    if (posted->busy)
        TRY(finish(side, posted->all_to_all.number, error));
    side->all_to_alls_open++;
    all_to_all->number = ++side->all_to_alls;
    posted->all_to_all = *all_to_all;
    posted->owned = all_to_all;
    all_to_all->arrival = 0;
    posted->busy = true;
    atomic_store(&posted->done, 0);
    if (side->member->local->links)
        publish_to_network(side, posted, all_to_all->number);
    else
        atomic_store(&posted->number, all_to_all->number);
    for (int i = 0; i < communicator->count; i++)
        local_unpark(&side->member->local->members[communicator->members[i]], PIECES);
    return STATUS_OK;
}

Status local_all_to_all_wait(Communicator *communicator, AllToAll *all_to_all, Error *error)
{
    LocalCommunicator *side = (LocalCommunicator *)communicator;
    const LocalPosted *own = entry_of(side->shared, all_to_all->number, communicator->self);
    side->all_to_alls_open--;
    if (own->busy && own->all_to_all.number == all_to_all->number)
        TRY(finish(side, all_to_all->number, error));
    return local_rest(side->member, all_to_all->arrival) ? STATUS_OK
                                                         : local_failure(side->member, communicator->members[0], error);
}
