/* One GPU a rank, messages by NCCL. What is no message (gathering, aborting, closing) goes through another transport:
   MPI between processes, `local` between threads. NCCL is opened when it is asked for.

   NCCL takes up what is enqueued in the order of its stream and stays there until the other end comes: so this
   transport works in order, and the program is run as its proof saw it, nothing posted early. Posts that stand side by
   side go in one group: each of them would wait where it stands for all before it, and no pass lies between. */

#include "runtime/base/clock.h"
#include "runtime/transport/sum.h"
#include "runtime/transport/transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- NCCL's own declarations, as far as they are needed; stable since 2.14 --- */

typedef struct ncclComm *NcclComm;
typedef struct NcclId {
    char internal[128];
} NcclId;
enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_BYTES = 1, NCCL_FLOATS = 7 }; /* ncclUint8, ncclFloat32 */
enum { NCCL_LEAST = 21400 };
static const unsigned NCCL_CONFIG_MAGIC = 0xcafebeef;

/* The beginning of ncclConfig_t: its size says where it ends. */
typedef struct NcclConfig {
    size_t size;
    unsigned magic, version;
    int blocking;
} NcclConfig;

typedef struct Nccl {
    int (*GetVersion)(int *version);
    const char *(*GetErrorString)(int code);
    int (*GetUniqueId)(NcclId *id);
    int (*CommInitRankConfig)(NcclComm *comm, int ranks, NcclId id, int rank, NcclConfig *config);
    int (*CommGetAsyncError)(NcclComm comm, int *code);
    int (*CommFinalize)(NcclComm comm);
    int (*CommDestroy)(NcclComm comm);
    int (*CommAbort)(NcclComm comm);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
    int (*Send)(const void *memory, size_t count, int type, int peer, NcclComm comm, void *stream);
    int (*Recv)(void *memory, size_t count, int type, int peer, NcclComm comm, void *stream);
} Nccl;

static Nccl nccl;
static const Transport *host; /* the other transport */

static Status open_library(Error *error)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return error_set(error, STATUS_RUN_FAILED, "transport nccl: NCCL is not installed (%s)", dlerror());
    const struct {
        const char *name;
        void **function;
    } entries[] = {
        {"ncclGetVersion", (void **)&nccl.GetVersion},
        {"ncclGetErrorString", (void **)&nccl.GetErrorString},
        {"ncclGetUniqueId", (void **)&nccl.GetUniqueId},
        {"ncclCommInitRankConfig", (void **)&nccl.CommInitRankConfig},
        {"ncclCommGetAsyncError", (void **)&nccl.CommGetAsyncError},
        {"ncclCommFinalize", (void **)&nccl.CommFinalize},
        {"ncclCommDestroy", (void **)&nccl.CommDestroy},
        {"ncclCommAbort", (void **)&nccl.CommAbort},
        {"ncclGroupStart", (void **)&nccl.GroupStart},
        {"ncclGroupEnd", (void **)&nccl.GroupEnd},
        {"ncclSend", (void **)&nccl.Send},
        {"ncclRecv", (void **)&nccl.Recv},
    };
    int version = 0;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        *entries[i].function = dlsym(library, entries[i].name);
        if (!*entries[i].function)
            return error_set(error, STATUS_RUN_FAILED, "transport nccl: this NCCL is too old: it has no %s",
                             entries[i].name);
    }
    if (nccl.GetVersion(&version) != NCCL_OK || version < NCCL_LEAST)
        return error_set(error, STATUS_RUN_FAILED, "transport nccl: NCCL %d.%d is too old, 2.14 is needed",
                         version / 10000, version / 100 % 100);
    return STATUS_OK;
}

/* --- endpoints --- */

enum { REDUCE_PIECE = 1 << 22 }; /* elements that are summed at a time: bounds the memory for what others send */

typedef struct Flight Flight;
struct Flight {
    Message *message; /* posted and not enqueued yet; else NULL */
    DeviceEvent *moved;
    Flight *next; /* while it is free */
};

struct Endpoint {
    Endpoint *next; /* of those open in this process */
    Endpoint *host;
    int rank, ranks;
    double deadline;
    NcclComm comm;
    Device *device;
    DeviceEvent *computed, *received; /* the ends of the two queues, handed from one to the other */
    Flight *flights, *free;
    size_t flight_count;
    Flight **posted; /* [posted_count], side by side */
    size_t posted_count;
    float *parts; /* what other members send to `reduce`; made when first used */
    size_t part_elements;
    void *greeting;       /* what the first meeting sends and receives */
    pthread_mutex_t lock; /* during every call with the communicator: abort may come from any thread */
    bool aborted;         /* under the lock: the communicator is gone */
    bool finalized;       /* it is told that the run has ended */
};

static Endpoint *open_endpoints;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static Status check(int code, const char *call, Error *error)
{
    if (code == NCCL_OK || code == NCCL_IN_PROGRESS)
        return STATUS_OK;
    return error_set(error, STATUS_RUN_FAILED, "%s: %s (%d)", call, nccl.GetErrorString(code), code);
}

/* For a call with the communicator; after it the lock is given back. */
static Status enter(Endpoint *endpoint, Error *error)
{
    pthread_mutex_lock(&endpoint->lock);
    if (!endpoint->aborted)
        return STATUS_OK;
    pthread_mutex_unlock(&endpoint->lock);
    return error_set(error, STATUS_RUN_FAILED, "the run was ended");
}

/* What a communicator is at. */
static Status look(Endpoint *endpoint, int *code, Error *error)
{
    TRY(enter(endpoint, error));
    const int result = nccl.CommGetAsyncError(endpoint->comm, code);
    pthread_mutex_unlock(&endpoint->lock);
    TRY(check(result, "ncclCommGetAsyncError", error));
    return check(*code, "NCCL", error);
}

/* Until NCCL is through with the call before: it does not block. */
static Status settle(Endpoint *endpoint, const char *call, Error *error)
{
    const int64_t begun = clock_nanoseconds();
    for (;;) {
        int code = NCCL_OK;
        const Status status = look(endpoint, &code, error);
        if (status != STATUS_OK) {
            error_prefix(error, "%s: ", call);
            return status;
        }
        if (code == NCCL_OK)
            return STATUS_OK;
        if (host->progress)
            TRY(host->progress(endpoint->host, error));
        if (endpoint->deadline > 0 && (double)(clock_nanoseconds() - begun) > endpoint->deadline * 1e9)
            return error_set(error, STATUS_RUN_FAILED, "%s: not all ranks have come within %g s", call,
                             endpoint->deadline);
        sched_yield();
    }
}

static void *stream_of(const Endpoint *endpoint)
{
    return endpoint->device->run->async->native_queue(endpoint->device, QUEUE_MESSAGES);
}

/* What is enqueued on `to` from now on comes after all that is on `from`. */
static Status follow(Endpoint *endpoint, DeviceQueue to, DeviceQueue from, Error *error)
{
    const DeviceAsync *queues = endpoint->device->run->async;
    DeviceEvent *event = from == QUEUE_COMPUTE ? endpoint->computed : endpoint->received;
    TRY(queues->record(endpoint->device, from, event, error));
    return queues->await(endpoint->device, to, event, error);
}

/* --- groups --- */

typedef struct Transfer {
    bool is_send;
    void *memory;
    size_t count;
    int type, peer;
} Transfer;

static Status add(Endpoint *endpoint, const Transfer *transfer, Error *error)
{
    void *stream = stream_of(endpoint);
    if (transfer->count == 0)
        return STATUS_OK;
    if (transfer->is_send)
        return check(
            nccl.Send(transfer->memory, transfer->count, transfer->type, transfer->peer, endpoint->comm, stream),
            "ncclSend", error);
    return check(nccl.Recv(transfer->memory, transfer->count, transfer->type, transfer->peer, endpoint->comm, stream),
                 "ncclRecv", error);
}

static Status begin_group(Endpoint *endpoint, Error *error)
{
    TRY(follow(endpoint, QUEUE_MESSAGES, QUEUE_COMPUTE, error));
    TRY(enter(endpoint, error));
    const Status status = check(nccl.GroupStart(), "ncclGroupStart", error);
    if (status != STATUS_OK)
        pthread_mutex_unlock(&endpoint->lock);
    return status;
}

/* A group that is begun is ended, whatever became of its transfers. */
static Status end_group(Endpoint *endpoint, Status status, Error *error)
{
    Error unheard;
    const Status ended = check(nccl.GroupEnd(), "ncclGroupEnd", status == STATUS_OK ? error : &unheard);
    pthread_mutex_unlock(&endpoint->lock);
    if (status != STATUS_OK || ended != STATUS_OK)
        return status != STATUS_OK ? status : ended;
    return settle(endpoint, "ncclGroupEnd", error);
}

/* --- messages --- */

static Status flush(Endpoint *endpoint, Error *error)
{
    const DeviceAsync *queues = endpoint->device->run->async;
    const size_t count = endpoint->posted_count;
    if (count == 0)
        return STATUS_OK;
    endpoint->posted_count = 0;
    TRY(begin_group(endpoint, error));
    Status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        const Message *message = endpoint->posted[i]->message;
        status = add(endpoint,
                     &(Transfer){message->is_send, *message->block, message->bytes, NCCL_BYTES, message->peer}, error);
    }
    TRY(end_group(endpoint, status, error));
    for (size_t i = 0; i < count; i++) {
        endpoint->posted[i]->message = NULL;
        TRY(queues->record(endpoint->device, QUEUE_MESSAGES, endpoint->posted[i]->moved, error));
    }
    return STATUS_OK;
}

static Status nccl_post(Endpoint *endpoint, Message *message, Error *error)
{
    Flight *flight = endpoint->free;
    if (!flight)
        return error_set(error, STATUS_RUN_FAILED, "rank %d has more messages in flight than it announced",
                         endpoint->rank);
    endpoint->free = flight->next;
    flight->message = message;
    message->request = flight;
    endpoint->posted[endpoint->posted_count++] = flight;
    return STATUS_OK;
}

static Status nccl_wait(Endpoint *endpoint, Message *message, Error *error)
{
    Flight *flight = message->request;
    TRY(flush(endpoint, error));
    flight->next = endpoint->free;
    endpoint->free = flight;
    return endpoint->device->run->async->await(endpoint->device, QUEUE_COMPUTE, flight->moved, error);
}

static Status nccl_progress(Endpoint *endpoint, Error *error)
{
    int code = NCCL_OK;
    if (!endpoint->comm)
        return STATUS_OK;
    TRY(flush(endpoint, error));
    TRY(look(endpoint, &code, error));
    return host->progress ? host->progress(endpoint->host, error) : STATUS_OK;
}

/* --- meetings --- */

static Status nccl_gather(Endpoint *endpoint, const void *mine, size_t bytes, void *all, Error *error)
{
    if (endpoint->device)
        TRY(flush(endpoint, error));
    return host->gather(endpoint->host, mine, bytes, all, error);
}

/* Every member gets its slice of everybody's buffer, adds them up and sends the sums to everybody. */
static Status reduce_piece(Endpoint *endpoint, const int *members, int count, int self, float *buffer, size_t elements,
                           Error *error)
{
    const DeviceTable *run = endpoint->device->run;
    const size_t own = sum_slice_start(elements, self, count),
                 length = sum_slice_start(elements, self + 1, count) - own;
    const size_t pitch = (length + 15) / 16 * 16;
    float *sum = self == 0 ? buffer + own : endpoint->parts;
    TRY(begin_group(endpoint, error));
    Status status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i < count; i++) {
        const size_t first = sum_slice_start(elements, i, count), end = sum_slice_start(elements, i + 1, count);
        if (i == self)
            continue;
        status = add(endpoint, &(Transfer){true, buffer + first, end - first, NCCL_FLOATS, members[i]}, error);
        if (status == STATUS_OK)
            status =
                add(endpoint, &(Transfer){false, endpoint->parts + (size_t)i * pitch, length, NCCL_FLOATS, members[i]},
                    error);
    }
    TRY(end_group(endpoint, status, error));
    TRY(follow(endpoint, QUEUE_COMPUTE, QUEUE_MESSAGES, error));
    for (int i = 1; i < count; i++) {
        const float *addend = i == self ? buffer + own : endpoint->parts + (size_t)i * pitch;
        TRY(run->accumulate(endpoint->device, length, addend, sum, error));
    }
    if (self != 0)
        TRY(run->copy(endpoint->device, length * sizeof *sum, sum, buffer + own, error));
    TRY(begin_group(endpoint, error));
    for (int i = 0; status == STATUS_OK && i < count; i++) {
        const size_t first = sum_slice_start(elements, i, count), end = sum_slice_start(elements, i + 1, count);
        if (i == self)
            continue;
        status = add(endpoint, &(Transfer){true, buffer + own, length, NCCL_FLOATS, members[i]}, error);
        if (status == STATUS_OK)
            status = add(endpoint, &(Transfer){false, buffer + first, end - first, NCCL_FLOATS, members[i]}, error);
    }
    TRY(end_group(endpoint, status, error));
    return follow(endpoint, QUEUE_COMPUTE, QUEUE_MESSAGES, error);
}

/* The masters of a GPU are floats. */
static Status nccl_reduce(Endpoint *endpoint, const int *members, int count, void *buffer, size_t elements, size_t size,
                          Error *error)
{
    (void)size;
    float *const floats = buffer;
    const DeviceTable *run = endpoint->device->run;
    const size_t piece = elements < REDUCE_PIECE ? elements : REDUCE_PIECE;
    const size_t needed = piece + 32 * (size_t)count; /* slices differ by a line */
    int self = 0;
    while (members[self] != endpoint->rank)
        self++;
    TRY(flush(endpoint, error));
    if (needed > endpoint->part_elements) {
        void *memory = NULL;
        run->deallocate(endpoint->device, endpoint->parts);
        endpoint->parts = NULL;
        endpoint->part_elements = 0;
        TRY(run->allocate(endpoint->device, needed * sizeof *endpoint->parts, &memory, error));
        endpoint->parts = memory;
        endpoint->part_elements = needed;
    }
    for (size_t at = 0; at < elements; at += piece) {
        const size_t some = elements - at < piece ? elements - at : piece;
        TRY(reduce_piece(endpoint, members, count, self, floats + at, some, error));
    }
    return STATUS_OK;
}

/* --- the run --- */

/* What the ranks tell each other before NCCL can. */
typedef struct Card {
    NcclId id;                          /* of rank 0: the name of the communicator */
    unsigned char gpu[DEVICE_IDENTITY]; /* of each: NCCL refuses two ranks on one, in words of its own log */
} Card;

static Status check_gpus(const Card *cards, int ranks, Error *error)
{
    for (int second = 1; second < ranks; second++)
        for (int first = 0; first < second; first++)
            if (memcmp(cards[first].gpu, cards[second].gpu, DEVICE_IDENTITY) == 0)
                return error_set(
                    error, STATUS_RUN_FAILED,
                    "ranks %d and %d are on the same GPU, and NCCL wants one for each: more GPUs, or all ranks on one "
                    "in one process (dprun --device cuda without mpirun)",
                    first, second);
    return STATUS_OK;
}

static Status exchange_cards(Endpoint *endpoint, NcclId *id, Error *error)
{
    Card own, *cards = calloc((size_t)endpoint->ranks, sizeof *cards);
    if (!cards)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the names of %d ranks", endpoint->ranks);
    memset(&own, 0, sizeof own);
    endpoint->device->run->async->identity(endpoint->device, own.gpu);
    Status status = endpoint->rank == 0 ? check(nccl.GetUniqueId(&own.id), "ncclGetUniqueId", error) : STATUS_OK;
    if (status == STATUS_OK)
        status = host->gather(endpoint->host, &own, sizeof own, cards, error);
    if (status == STATUS_OK)
        status = check_gpus(cards, endpoint->ranks, error);
    *id = cards[0].id;
    free(cards);
    return status;
}

static Status connect(Endpoint *endpoint, Error *error)
{
    NcclId id;
    TRY(exchange_cards(endpoint, &id, error));
    NcclConfig config = {.size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = NCCL_LEAST, .blocking = 0};
    NcclComm comm = NULL;
    TRY(check(nccl.CommInitRankConfig(&comm, endpoint->ranks, id, endpoint->rank, &config), "ncclCommInitRankConfig",
              error));
    pthread_mutex_lock(&endpoint->lock);
    if (endpoint->aborted) /* meanwhile, when there was none to abort */
        nccl.CommAbort(comm);
    else
        endpoint->comm = comm;
    pthread_mutex_unlock(&endpoint->lock);
    return settle(endpoint, "ncclCommInitRankConfig", error);
}

/* NCCL connects two ranks when they first meet, and that takes long: here all meet before the first step. */
static Status greet(Endpoint *endpoint, Error *error)
{
    const size_t pitch = 64, ranks = (size_t)endpoint->ranks;
    TRY(endpoint->device->run->allocate(endpoint->device, 2 * ranks * pitch, &endpoint->greeting, error));
    TRY(begin_group(endpoint, error));
    Status status = STATUS_OK;
    for (int peer = 0; status == STATUS_OK && peer < endpoint->ranks; peer++) {
        char *out = (char *)endpoint->greeting + 2 * (size_t)peer * pitch;
        status = add(endpoint, &(Transfer){true, out, 1, NCCL_BYTES, peer}, error);
        if (status == STATUS_OK)
            status = add(endpoint, &(Transfer){false, out + pitch, 1, NCCL_BYTES, peer}, error);
    }
    TRY(end_group(endpoint, status, error));
    return follow(endpoint, QUEUE_COMPUTE, QUEUE_MESSAGES, error);
}

static Status nccl_attach(Endpoint *endpoint, Device *device, Error *error)
{
    const DeviceAsync *queues = device->run->async;
    endpoint->device = device;
    TRY(queues->make_event(device, &endpoint->computed, error));
    TRY(queues->make_event(device, &endpoint->received, error));
    for (size_t i = 0; i < endpoint->flight_count; i++)
        TRY(queues->make_event(device, &endpoint->flights[i].moved, error));
    TRY(connect(endpoint, error));
    return greet(endpoint, error);
}

/* Ends the kernels that wait for a peer as well. */
static void end_communicator(Endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->lock);
    if (endpoint->comm && !endpoint->aborted)
        nccl.CommAbort(endpoint->comm);
    endpoint->aborted = true;
    pthread_mutex_unlock(&endpoint->lock);
}

/* The other ranks of this process are ended here; those of other processes hear of it from the other transport. */
static void nccl_abort(Endpoint *endpoint, const char *reason)
{
    host->abort(endpoint->host, reason);
    pthread_mutex_lock(&open_lock);
    for (Endpoint *any = open_endpoints; any; any = any->next)
        end_communicator(any);
    pthread_mutex_unlock(&open_lock);
}

static void detach(Endpoint *endpoint)
{
    Device *device = endpoint->device;
    const DeviceAsync *queues = device->run->async;
    device->run->deallocate(device, endpoint->parts);
    device->run->deallocate(device, endpoint->greeting);
    queues->free_event(device, endpoint->computed);
    queues->free_event(device, endpoint->received);
    for (size_t i = 0; i < endpoint->flight_count; i++)
        queues->free_event(device, endpoint->flights[i].moved);
}

static void release(Endpoint *endpoint)
{
    pthread_mutex_lock(&open_lock);
    Endpoint **at = &open_endpoints;
    while (*at && *at != endpoint)
        at = &(*at)->next;
    if (*at)
        *at = endpoint->next;
    pthread_mutex_unlock(&open_lock);
    pthread_mutex_destroy(&endpoint->lock);
    free(endpoint->flights);
    free(endpoint->posted);
    free(endpoint);
}

/* A communicator ends when all of its ranks have said so, those of this process perhaps in one thread: so all of them
   say it before the first one waits. What does not end in time is aborted: nobody needs it any more. */
static void finalize_all(void)
{
    Error unheard;
    pthread_mutex_lock(&open_lock);
    for (Endpoint *any = open_endpoints; any; any = any->next)
        if (any->comm && !any->aborted && !any->finalized) {
            any->finalized = true;
            if (check(nccl.CommFinalize(any->comm), "ncclCommFinalize", &unheard) != STATUS_OK)
                end_communicator(any);
        }
    for (Endpoint *any = open_endpoints; any; any = any->next)
        if (any->finalized && settle(any, "ncclCommFinalize", &unheard) != STATUS_OK)
            end_communicator(any);
    pthread_mutex_unlock(&open_lock);
}

static void nccl_close(Endpoint *endpoint)
{
    if (!endpoint->finalized)
        finalize_all();
    if (endpoint->comm && !endpoint->aborted)
        nccl.CommDestroy(endpoint->comm);
    if (endpoint->device)
        detach(endpoint);
    host->close(endpoint->host);
    release(endpoint);
}

static Endpoint *wrap(const TransportConfig *config, Endpoint *inner, int rank)
{
    Endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint)
        return NULL;
    endpoint->host = inner;
    endpoint->rank = rank;
    endpoint->ranks = config->ranks;
    endpoint->deadline = config->deadline;
    endpoint->flight_count = 2 * (size_t)(config->messages_in_flight > 1 ? config->messages_in_flight : 1);
    endpoint->flights = calloc(endpoint->flight_count, sizeof *endpoint->flights);
    endpoint->posted = calloc(endpoint->flight_count, sizeof *endpoint->posted);
    pthread_mutex_init(&endpoint->lock, NULL);
    if (!endpoint->flights || !endpoint->posted) {
        release(endpoint);
        return NULL;
    }
    for (size_t i = 0; i < endpoint->flight_count; i++) {
        endpoint->flights[i].next = endpoint->free;
        endpoint->free = &endpoint->flights[i];
    }
    pthread_mutex_lock(&open_lock);
    endpoint->next = open_endpoints;
    open_endpoints = endpoint;
    pthread_mutex_unlock(&open_lock);
    return endpoint;
}

static Status nccl_open(const TransportConfig *config, Endpoint **endpoints, Error *error)
{
    TRY(host->open(config, endpoints, error));
    for (int rank = 0; rank < config->ranks; rank++) {
        if (!endpoints[rank])
            continue;
        Endpoint *endpoint = wrap(config, endpoints[rank], rank);
        if (!endpoint) {
            const Status status =
                error_set(error, STATUS_RUN_FAILED, "no memory for the messages of %d ranks", config->ranks);
            host->abort(endpoints[rank], error->text);
            for (int r = 0; r < config->ranks; r++) {
                if (endpoints[r])
                    host->close(r < rank ? endpoints[r]->host : endpoints[r]);
                if (endpoints[r] && r < rank)
                    release(endpoints[r]);
                endpoints[r] = NULL;
            }
            return status;
        }
        endpoints[rank] = endpoint;
    }
    return STATUS_OK;
}

static const Transport transport_nccl = {
    .name = "nccl",
    .open = nccl_open,
    .attach = nccl_attach,
    .send = nccl_post,
    .receive = nccl_post,
    .wait = nccl_wait,
    .progress = nccl_progress,
    .gather = nccl_gather,
    .reduce = nccl_reduce,
    .abort = nccl_abort,
    .close = nccl_close,
};

Status transport_load_nccl(const Transport *beside, const Transport **transport, Error *error)
{
    TRY(open_library(error));
    host = beside;
    *transport = &transport_nccl;
    return STATUS_OK;
}
