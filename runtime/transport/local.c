#include "runtime/base/clock.h"
#include "runtime/transport/sum.h"
#include "runtime/transport/transport.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All ranks are threads of this process. The k-th send and the k-th receive of a directed pair of ranks meet in one
   place of their channel: who comes first leaves its request there, who comes second exchanges the blocks of both and
   tells the first. So a hand-over copies nothing, and a send ends only once its receive was posted: a rendezvous.

   Blocks of a device are copied, as they are between devices: who comes second enqueues the copy behind both posts and
   notes its end for both waits. A thread waits for the other rank's post, never for the device; and as everything
   enqueued waits only for what was enqueued before, the queues cannot wait in a circle. */

enum {
    CACHE_LINE = 64,
    SPINS = 1000,         /* some tens of microseconds: longer than a hand-over, shorter than any pass */
    MEETING = 0x7fffffff, /* what an endpoint waits for when it is no request */
};

enum { RUNNING, ABORTING, ABORTED };

typedef struct Request Request;
typedef struct Meeting Meeting;
typedef struct Local Local;

struct Request {
    alignas(CACHE_LINE) _Atomic uint64_t done; /* 0, then 1 */
    void *block;
    size_t bytes;
    bool is_send;
    DeviceEvent *posted, *moved; /* of a device: the block may be touched by the copy, and by its owner again */
    Endpoint *owner;
    uint32_t number; /* from 1 */
    Request *next;   /* while it is free */
};

typedef struct Channel {
    alignas(CACHE_LINE) uint64_t sent;     /* the sender's */
    alignas(CACHE_LINE) uint64_t received; /* the receiver's */
    /* Message k uses place k % capacity, empty before and after. The capacity is at least the number of requests of a
       rank; so whoever posts message k + capacity has at least one of k, k + 1, ... behind it, and that one was met by
       the other side after it had emptied the place of k, in whatever order the waits come. */
    alignas(CACHE_LINE) _Atomic(Request *) places[];
} Channel;

struct Endpoint {
    /* 0 while the rank's thread is awake, else what it sleeps for: a request's number or MEETING. Who brings that about
       sets it to 0 and wakes the thread; nobody else makes a system call. */
    alignas(CACHE_LINE) _Atomic uint32_t parked;
    alignas(CACHE_LINE) Local *local;
    int rank;
    Request *free;
    Device *device;                /* NULL: blocks are in the host's memory */
    DeviceEvent *given, *returned; /* of a device: the buffer of `reduce` may be touched by others, and is done with */
    float *buffer;                 /* of a device: that of `reduce` */
    pthread_mutex_t lock;          /* guards `meetings` */
    Meeting *meetings;             /* of the groups whose first member this rank is */
};

/* A group of ranks that meet again and again. */
struct Meeting {
    Meeting *next;
    int count;
    void **given;                                  /* [count], for everybody to read between two rounds */
    alignas(CACHE_LINE) _Atomic uint64_t arrivals; /* of all rounds: round n is complete at n * count */
    struct Member {
        _Atomic uint64_t arrived; /* its last round */
        int rank;
    } members[];
};

struct Local {
    int ranks;
    int spins;
    double deadline;
    uint64_t capacity;    /* of a channel; a power of two */
    size_t requests_each; /* of a rank */
    _Atomic int open;     /* endpoints */
    Endpoint *endpoints;
    Request *requests;
    Meeting *everybody;
    _Atomic(Channel *) *channels; /* [from * ranks + to], made when first used */
    atomic_int state;
    char reason[sizeof((Error *)0)->text];
};

/* --- sleeping and waking --- */

static void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void unpark(Endpoint *endpoint, uint32_t cause)
{
    if (atomic_load(&endpoint->parked) == cause && atomic_compare_exchange_strong(&endpoint->parked, &cause, 0))
        syscall(SYS_futex, &endpoint->parked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool aborted(const Local *local) { return atomic_load(&local->state) == ABORTED; }

/* Waits until `counter` has reached `target`; who raises it unparks with `cause`. False when the run was aborted or the
   deadline has passed. Either this thread sees the counter raised, or who raised it sees this thread parked: both sides
   write, then read, all sequentially consistent. */
static bool await(Endpoint *endpoint, _Atomic uint64_t *counter, uint64_t target, uint32_t cause)
{
    const Local *local = endpoint->local;
    for (int spin = 0; spin <= local->spins; spin++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= target)
            return !aborted(local);
        pause_processor();
    }
    const int64_t until = clock_nanoseconds() + (int64_t)(local->deadline * 1e9);
    const struct timespec limit = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    bool late = false;
    for (;;) {
        atomic_store(&endpoint->parked, cause);
        const bool reached = atomic_load(counter) >= target;
        if (!reached && !late && !aborted(local)) {
            const long slept = syscall(SYS_futex, &endpoint->parked, FUTEX_WAIT_BITSET_PRIVATE, cause,
                                       local->deadline > 0 ? &limit : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
            late = slept != 0 && errno == ETIMEDOUT;
            continue;
        }
        atomic_store(&endpoint->parked, 0);
        return reached && !aborted(local);
    }
}

static Status failure(const Local *local, int missing, Error *error)
{
    if (aborted(local))
        return error_set(error, STATUS_RUN_FAILED, "%s", local->reason);
    return error_set(error, STATUS_RUN_FAILED, "no answer from rank %d within %g s (--deadline)", missing,
                     local->deadline);
}

/* --- messages --- */

static Channel *channel_of(Local *local, int from, int to)
{
    _Atomic(Channel *) *entry = &local->channels[(size_t)from * (size_t)local->ranks + (size_t)to];
    Channel *channel = atomic_load_explicit(entry, memory_order_acquire);
    if (channel)
        return channel;
    const size_t size = sizeof(Channel) + local->capacity * sizeof(_Atomic(Request *));
    Channel *made = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!made)
        return NULL;
    memset(made, 0, size);
    if (atomic_compare_exchange_strong(entry, &channel, made))
        return made;
    free(made); /* the other side was first */
    return channel;
}

/* The copy of a message whose both ends are posted, enqueued by the second. */
static Status enqueue_copy(Endpoint *endpoint, const Request *request, const Request *other, Error *error)
{
    Device *device = endpoint->device;
    const DeviceAsync *queues = device->run->async;
    const Request *from = request->is_send ? request : other, *to = request->is_send ? other : request;
    TRY(queues->await(device, QUEUE_MESSAGES, from->posted, error));
    TRY(queues->await(device, QUEUE_MESSAGES, to->posted, error));
    TRY(queues->copy_block(device, QUEUE_MESSAGES, to->bytes, from->block, to->block, error));
    TRY(queues->record(device, QUEUE_MESSAGES, from->moved, error));
    return queues->record(device, QUEUE_MESSAGES, to->moved, error);
}

static Status post(Endpoint *endpoint, Channel *channel, uint64_t *posted, Message *message, Error *error)
{
    Request *request = endpoint->free;
    if (!request)
        return error_set(error, STATUS_RUN_FAILED, "rank %d has more messages in flight than it announced",
                         endpoint->rank);
    endpoint->free = request->next;
    atomic_store_explicit(&request->done, 0, memory_order_relaxed);
    request->block = *message->block;
    request->bytes = message->bytes;
    request->is_send = message->is_send;
    message->request = request;
    if (endpoint->device)
        TRY(endpoint->device->run->async->record(endpoint->device, QUEUE_COMPUTE, request->posted, error));
    message->sequence = (*posted)++;

    _Atomic(Request *) *place = &channel->places[message->sequence & (endpoint->local->capacity - 1)];
    Request *other = NULL;
    if (atomic_compare_exchange_strong_explicit(place, &other, request, memory_order_acq_rel, memory_order_acquire))
        return STATUS_OK;
    atomic_store_explicit(place, NULL, memory_order_relaxed);
    if (endpoint->device) {
        TRY(enqueue_copy(endpoint, request, other, error));
    } else {
        void *block = other->block;
        other->block = request->block;
        request->block = block;
    }
    atomic_store_explicit(&request->done, 1, memory_order_relaxed);
    Endpoint *peer = other->owner;
    const uint32_t cause = other->number;
    atomic_store(&other->done, 1); /* from here on it is its owner's again */
    unpark(peer, cause);
    return STATUS_OK;
}

static Status local_send(Endpoint *endpoint, Message *message, Error *error)
{
    Channel *channel = channel_of(endpoint->local, endpoint->rank, message->peer);
    if (!channel)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the messages to rank %d", message->peer);
    return post(endpoint, channel, &channel->sent, message, error);
}

static Status local_receive(Endpoint *endpoint, Message *message, Error *error)
{
    Channel *channel = channel_of(endpoint->local, message->peer, endpoint->rank);
    if (!channel)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the messages from rank %d", message->peer);
    return post(endpoint, channel, &channel->received, message, error);
}

static Status local_wait(Endpoint *endpoint, Message *message, Error *error)
{
    Request *request = message->request;
    if (!await(endpoint, &request->done, 1, request->number))
        return failure(endpoint->local, message->peer, error);
    *message->block = request->block;
    request->next = endpoint->free;
    endpoint->free = request;
    if (endpoint->device)
        return endpoint->device->run->async->await(endpoint->device, QUEUE_COMPUTE, request->moved, error);
    return STATUS_OK;
}

/* --- meetings --- */

static Meeting *meeting_make(const int *members, int count)
{
    const size_t size = sizeof(Meeting) + (size_t)count * (sizeof(struct Member) + sizeof(void *));
    Meeting *meeting = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!meeting)
        return NULL;
    memset(meeting, 0, size);
    meeting->count = count;
    meeting->given = (void **)&meeting->members[count];
    for (int i = 0; i < count; i++)
        meeting->members[i].rank = members ? members[i] : i;
    return meeting;
}

static bool meeting_is_of(const Meeting *meeting, const int *members, int count)
{
    bool same = meeting->count == count;
    for (int i = 0; same && i < count; i++)
        same = meeting->members[i].rank == members[i];
    return same;
}

static Meeting *meeting_of(Local *local, const int *members, int count)
{
    Endpoint *host = &local->endpoints[members[0]];
    pthread_mutex_lock(&host->lock);
    Meeting *meeting = host->meetings;
    while (meeting && !meeting_is_of(meeting, members, count))
        meeting = meeting->next;
    if (!meeting) {
        meeting = meeting_make(members, count);
        if (meeting) {
            meeting->next = host->meetings;
            host->meetings = meeting;
        }
    }
    pthread_mutex_unlock(&host->lock);
    return meeting;
}

/* Returns when all members have come; `self` is this rank's place among them. */
static Status meet(Endpoint *endpoint, Meeting *meeting, int self, Error *error)
{
    Local *local = endpoint->local;
    const uint64_t count = (uint64_t)meeting->count;
    struct Member *members = meeting->members;
    const uint64_t round = atomic_load_explicit(&members[self].arrived, memory_order_relaxed) + 1;
    atomic_store_explicit(&members[self].arrived, round, memory_order_relaxed);
    if (atomic_fetch_add(&meeting->arrivals, 1) + 1 == round * count)
        for (uint64_t i = 0; i < count; i++)
            unpark(&local->endpoints[members[i].rank], MEETING);
    if (await(endpoint, &meeting->arrivals, round * count, MEETING))
        return STATUS_OK;
    int missing = 0;
    while (missing + 1 < meeting->count && atomic_load(&members[missing].arrived) >= round)
        missing++;
    return failure(local, members[missing].rank, error);
}

static Status local_gather(Endpoint *endpoint, const void *mine, size_t bytes, void *all, Error *error)
{
    Meeting *meeting = endpoint->local->everybody;
    char *own = (char *)all + (size_t)endpoint->rank * bytes;
    memmove(own, mine, bytes);
    meeting->given[endpoint->rank] = own;
    TRY(meet(endpoint, meeting, endpoint->rank, error));
    for (int rank = 0; rank < meeting->count; rank++)
        if (rank != endpoint->rank)
            memcpy((char *)all + (size_t)rank * bytes, meeting->given[rank], bytes);
    return meet(endpoint, meeting, endpoint->rank, error);
}

/* The same for buffers of a device: each member's queue adds up its slice in the first member's buffer. */
static Status reduce_on_device(Endpoint *endpoint, Meeting *meeting, int self, float *buffer, size_t elements,
                               Error *error)
{
    Device *device = endpoint->device;
    const DeviceTable *run = device->run;
    Endpoint **members = (Endpoint **)meeting->given;
    endpoint->buffer = buffer;
    members[self] = endpoint;
    TRY(run->async->record(device, QUEUE_COMPUTE, endpoint->given, error));
    TRY(meet(endpoint, meeting, self, error));
    const size_t count = (size_t)meeting->count;
    const size_t start = sum_slice_start(elements, self, meeting->count);
    const size_t length = sum_slice_start(elements, self + 1, meeting->count) - start;
    for (size_t i = 0; i < count; i++)
        TRY(run->async->await(device, QUEUE_COMPUTE, members[i]->given, error));
    float *sum = members[0]->buffer + start;
    for (size_t i = 1; i < count; i++)
        TRY(run->accumulate(device, length, members[i]->buffer + start, sum, error));
    for (size_t i = 1; i < count; i++)
        TRY(run->copy(device, length * sizeof *sum, sum, members[i]->buffer + start, error));
    TRY(run->async->record(device, QUEUE_COMPUTE, endpoint->returned, error));
    TRY(meet(endpoint, meeting, self, error));
    for (size_t i = 0; i < count; i++)
        TRY(run->async->await(device, QUEUE_COMPUTE, members[i]->returned, error));
    return meet(endpoint, meeting, self, error); /* until here they read what this rank has given */
}

/* Each member adds up one slice of everybody's buffers and writes the sums back to everybody. */
static Status local_reduce(Endpoint *endpoint, const int *members, int count, void *buffer, size_t elements,
                           size_t size, Error *error)
{
    Meeting *meeting = meeting_of(endpoint->local, members, count);
    if (!meeting)
        return error_set(error, STATUS_RUN_FAILED, "no memory to sum over %d ranks", count);
    int self = 0;
    while (members[self] != endpoint->rank)
        self++;
    if (endpoint->device)
        return reduce_on_device(endpoint, meeting, self, buffer, elements, error);
    void **buffers = meeting->given;
    buffers[self] = buffer;
    TRY(meet(endpoint, meeting, self, error));
    const size_t end = elements * (size_t)(self + 1) / (size_t)count;
    for (size_t start = elements * (size_t)self / (size_t)count; start < end; start += SUM_BLOCK) {
        SumBlock sums;
        const size_t length = end - start < SUM_BLOCK ? end - start : SUM_BLOCK;
        sum_in_order(buffers, count, start, length, size, &sums);
        for (int i = 0; i < count; i++)
            memcpy((char *)buffers[i] + start * size, &sums, length * size);
    }
    return meet(endpoint, meeting, self, error);
}

/* --- the run --- */

static void local_abort(Endpoint *endpoint, const char *reason)
{
    Local *local = endpoint->local;
    int running = RUNNING;
    if (!atomic_compare_exchange_strong(&local->state, &running, ABORTING))
        return; /* the first reason counts */
    snprintf(local->reason, sizeof local->reason, "rank %d ended the run: %s", endpoint->rank, reason);
    atomic_store(&local->state, ABORTED);
    for (int rank = 0; rank < local->ranks; rank++)
        unpark(&local->endpoints[rank], atomic_load(&local->endpoints[rank].parked));
}

static void local_free(Local *local)
{
    const size_t ranks = (size_t)local->ranks;
    for (size_t i = 0; local->channels && i < ranks * ranks; i++)
        free(local->channels[i]);
    for (size_t rank = 0; local->endpoints && rank < ranks; rank++) {
        Endpoint *endpoint = &local->endpoints[rank];
        for (Meeting *meeting = endpoint->meetings, *next; meeting; meeting = next) {
            next = meeting->next;
            free(meeting);
        }
        pthread_mutex_destroy(&endpoint->lock);
    }
    free(local->everybody);
    free(local->channels);
    free(local->requests);
    free(local->endpoints);
    free(local);
}

static Status local_attach(Endpoint *endpoint, Device *device, Error *error)
{
    const DeviceAsync *queues = device->run->async;
    endpoint->device = device;
    TRY(queues->make_event(device, &endpoint->given, error));
    TRY(queues->make_event(device, &endpoint->returned, error));
    for (Request *request = endpoint->free; request; request = request->next) {
        TRY(queues->make_event(device, &request->posted, error));
        TRY(queues->make_event(device, &request->moved, error));
    }
    return STATUS_OK;
}

static void detach(Endpoint *endpoint)
{
    const DeviceAsync *queues = endpoint->device->run->async;
    const Local *local = endpoint->local;
    queues->free_event(endpoint->device, endpoint->given);
    queues->free_event(endpoint->device, endpoint->returned);
    for (size_t i = 0; i < local->requests_each; i++) {
        Request *request = &local->requests[(size_t)endpoint->rank * local->requests_each + i];
        queues->free_event(endpoint->device, request->posted);
        queues->free_event(endpoint->device, request->moved);
    }
}

/* Ranks may touch each other's endpoints until the last of them is closed. */
static void local_close(Endpoint *endpoint)
{
    if (endpoint->device)
        detach(endpoint);
    if (atomic_fetch_sub(&endpoint->local->open, 1) == 1)
        local_free(endpoint->local);
}

static int processors(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
    return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more of them than fit a cpu_set_t */
}

static Status local_open(const TransportConfig *config, Endpoint **endpoints, Error *error)
{
    const size_t ranks = (size_t)config->ranks;
    const size_t requests = 2 * (size_t)(config->messages_in_flight > 1 ? config->messages_in_flight : 1);
    Local *local = calloc(1, sizeof *local);
    if (local) {
        local->ranks = config->ranks;
        local->spins = config->ranks <= processors() ? SPINS : 0;
        local->deadline = config->deadline < 1e9 ? config->deadline : 0;
        local->requests_each = requests;
        local->capacity = 1;
        while (local->capacity < requests)
            local->capacity *= 2;
        local->endpoints = aligned_alloc(CACHE_LINE, ranks * sizeof *local->endpoints);
        local->requests = aligned_alloc(CACHE_LINE, ranks * requests * sizeof *local->requests);
        local->channels = calloc(ranks * ranks, sizeof *local->channels);
        local->everybody = meeting_make(NULL, config->ranks);
    }
    if (!local || !local->endpoints || !local->requests || !local->channels || !local->everybody) {
        if (local) {
            free(local->endpoints);
            local->endpoints = NULL;
            local_free(local);
        }
        return error_set(error, STATUS_RUN_FAILED, "no memory for the messages of %d ranks", config->ranks);
    }
    memset(local->endpoints, 0, ranks * sizeof *local->endpoints);
    memset(local->requests, 0, ranks * requests * sizeof *local->requests);
    atomic_store(&local->open, config->ranks);
    for (size_t rank = 0; rank < ranks; rank++) {
        Endpoint *endpoint = &local->endpoints[rank];
        endpoint->local = local;
        endpoint->rank = (int)rank;
        pthread_mutex_init(&endpoint->lock, NULL);
        for (size_t i = requests; i > 0; i--) {
            Request *request = &local->requests[rank * requests + i - 1];
            request->owner = endpoint;
            request->number = (uint32_t)i;
            request->next = endpoint->free;
            endpoint->free = request;
        }
        endpoints[rank] = endpoint;
    }
    return STATUS_OK;
}

const Transport transport_local = {
    .name = "local",
    .open = local_open,
    .attach = local_attach,
    .send = local_send,
    .receive = local_receive,
    .wait = local_wait,
    .gather = local_gather,
    .reduce = local_reduce,
    .abort = local_abort,
    .close = local_close,
};
