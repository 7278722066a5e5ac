#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/mock/mock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { RANKS_MAX = 16, TRANSFERS_MAX = 64, RING = 1 << 14 };

typedef struct Transfer {
    bool is_send, done;
    char *memory;
    uint64_t bytes, moved;
    uint64_t other_bytes; /* for a receive: the size that the sender gives */
    bool told;            /* the size has been written to the ring, or read from it */
    uint64_t end;         /* for a send: the position after the message in the ring; 0: not yet written */
    int peer;
} Transfer;

typedef struct ncclComm Comm;

typedef struct Group {
    Comm *comm;
    CudaStream *stream;
    int count;
    bool greets; /* the group is a greeting: each transfer has one byte and serves only to connect two ranks */
    Transfer transfers[TRANSFERS_MAX];
} Group;

/* A ring buffer with the messages from one rank to another. Each message is its size, then its bytes. A send is
   complete when the receiver has read the whole message. */
typedef struct Ring {
    _Atomic uint64_t written, read;
    bool connected; /* set by the receiver when the first message arrives */
    char data[RING];
} Ring;

/* Memory that all ranks share, threads or processes. It has no name, so nothing is left over when the processes end:
   other processes open it through the process that made it. */
typedef struct Clique {
    _Atomic int joined, finalized;
    Ring rings[RANKS_MAX][RANKS_MAX]; /* [from][to] */
} Clique;

struct ncclComm {
    Clique *clique;
    int ranks, rank;
    /* queries of the state since the last GroupEnd or Finalize; counted once all ranks have joined or finalized */
    unsigned asked;
    Group *waiting; /* the group that has ended and is not enqueued yet; NULL: none */
    bool aborted, finalizes;
    int async;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FakeNccl setting = {.silent_rank = -1};
static FakeNcclReport report;
static int calls, asked;
static int newest = -1; /* file descriptor of the shared memory of the newest id that this process has made; -1: none */
static _Thread_local Group *open_group;
static _Thread_local int depth;

void fake_nccl_begin(const FakeNccl *new_setting);
void fake_nccl_begin(const FakeNccl *new_setting)
{
    pthread_mutex_lock(&lock);
    setting = *new_setting;
    report = (FakeNcclReport){0};
    calls = asked = 0;
    pthread_mutex_unlock(&lock);
}

FakeNcclReport fake_nccl_report(void);
FakeNcclReport fake_nccl_report(void)
{
    pthread_mutex_lock(&lock);
    const FakeNcclReport now = report;
    pthread_mutex_unlock(&lock);
    return now;
}

static bool fails(const char *call)
{
    return setting.fails && strcmp(setting.fails, call) == 0 && ++calls == setting.fails_at;
}

/* --- matching groups; the caller holds the lock of the mock runtime and the one of this file --- */

static uint64_t put(Ring *ring, const char *bytes, uint64_t count)
{
    const uint64_t at = atomic_load(&ring->written), space = RING - (at - atomic_load(&ring->read));
    count = count < space ? count : space;
    for (uint64_t i = 0; i < count; i++)
        ring->data[(at + i) % RING] = bytes[i];
    atomic_store(&ring->written, at + count);
    return count;
}

static uint64_t take(Ring *ring, char *bytes, uint64_t count)
{
    const uint64_t at = atomic_load(&ring->read), there = atomic_load(&ring->written) - at;
    count = count < there ? count : there;
    for (uint64_t i = 0; bytes && i < count; i++)
        bytes[i] = ring->data[(at + i) % RING];
    atomic_store(&ring->read, at + count);
    return count;
}

static void push(Ring *ring, Transfer *transfer)
{
    if (!transfer->told && RING - (atomic_load(&ring->written) - atomic_load(&ring->read)) >= sizeof transfer->bytes)
        transfer->told = put(ring, (const char *)&transfer->bytes, sizeof transfer->bytes) > 0;
    if (transfer->told && transfer->moved < transfer->bytes)
        transfer->moved += put(ring, transfer->memory + transfer->moved, transfer->bytes - transfer->moved);
    if (transfer->told && transfer->moved == transfer->bytes && transfer->end == 0)
        transfer->end = atomic_load(&ring->written);
    transfer->done = transfer->end > 0 && atomic_load(&ring->read) >= transfer->end;
}

static void pull(Ring *ring, Transfer *transfer, bool greets)
{
    if (!transfer->told && atomic_load(&ring->written) - atomic_load(&ring->read) >= sizeof transfer->other_bytes) {
        take(ring, (char *)&transfer->other_bytes, sizeof transfer->other_bytes);
        transfer->told = true;
        report.mismatches += transfer->other_bytes != transfer->bytes;
        report.late_connections += !greets && !ring->connected;
        ring->connected = true;
    }
    if (!transfer->told)
        return;
    const uint64_t fits = transfer->bytes < transfer->other_bytes ? transfer->bytes : transfer->other_bytes;
    if (transfer->moved < fits)
        transfer->moved += take(ring, transfer->memory + transfer->moved, fits - transfer->moved);
    if (transfer->moved >= fits)
        transfer->moved += take(ring, NULL, transfer->other_bytes - transfer->moved);
    transfer->done = transfer->moved == transfer->other_bytes;
}

/* Whether transfer `index` of a group may move now: transfers from one rank to another rank move one after the other,
   in order. */
static bool is_next(const Group *group, int index)
{
    for (int i = 0; i < index; i++)
        if (!group->transfers[i].done && group->transfers[i].peer == group->transfers[index].peer &&
            group->transfers[i].is_send == group->transfers[index].is_send)
            return false;
    return true;
}

static bool attempt(void *data)
{
    Group *group = data;
    Comm *comm = group->comm;
    bool all = true;
    pthread_mutex_lock(&lock);
    if (comm->aborted) {
        all = true;
    } else if (comm->rank == setting.silent_rank && !group->greets) {
        all = false;
    } else {
        for (int i = 0; i < group->count; i++) {
            Transfer *transfer = &group->transfers[i];
            if (!transfer->done && is_next(group, i)) {
                if (transfer->is_send)
                    push(&comm->clique->rings[comm->rank][transfer->peer], transfer);
                else
                    pull(&comm->clique->rings[transfer->peer][comm->rank], transfer, group->greets);
            }
            all &= transfer->done;
        }
    }
    pthread_mutex_unlock(&lock);
    return all;
}

static void submit(Comm *comm)
{
    Group *group = comm->waiting;
    MockAccess accesses[TRANSFERS_MAX];
    comm->waiting = NULL;
    if (!group)
        return;
    for (int i = 0; i < group->count; i++)
        accesses[i] = (MockAccess){group->transfers[i].memory, group->transfers[i].bytes, !group->transfers[i].is_send};
    mock_enqueue(group->stream, attempt, group, accesses, (size_t)group->count);
}

/* --- the library --- */

typedef struct Id {
    char internal[128];
} Id;

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int code);
int ncclGetUniqueId(Id *id);
int ncclCommInitRankConfig(Comm **made, int ranks, Id id, int rank, const void *config);
int ncclCommGetAsyncError(Comm *comm, int *code);
int ncclCommFinalize(Comm *comm);
int ncclCommDestroy(Comm *comm);
int ncclCommAbort(Comm *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *memory, size_t count, int type, int peer, Comm *comm, CudaStream *stream);
int ncclRecv(void *memory, size_t count, int type, int peer, Comm *comm, CudaStream *stream);

int ncclGetVersion(int *version)
{
    *version = setting.version ? setting.version : 22809;
    return OK;
}

const char *ncclGetErrorString(int code)
{
    return code == REMOTE_ERROR ? "remote process exited or there was a network error" : "internal error";
}

int ncclGetUniqueId(Id *id)
{
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    const bool failing = fails("GetUniqueId");
    if (newest >= 0)
        close(newest);
    newest = memfd_create("fake-nccl", MFD_CLOEXEC);
    const bool good = newest >= 0 && ftruncate(newest, sizeof(Clique)) == 0;
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), newest);
    pthread_mutex_unlock(&lock);
    return failing ? INTERNAL_ERROR : good ? OK : SYSTEM_ERROR;
}

int ncclCommInitRankConfig(Comm **made, int ranks, Id id, int rank, const void *config)
{
    int blocking;
    size_t size;
    memcpy(&size, config, sizeof size);
    memcpy(&blocking, (const char *)config + sizeof(size_t) + 2 * sizeof(unsigned), sizeof blocking);
    if (ranks > RANKS_MAX || strncmp(id.internal, "/proc/", 6) != 0 || blocking != 0)
        return INVALID_USAGE;
    pthread_mutex_lock(&lock);
    if (size == 32)
        memcpy(&report.most_blocks, (const char *)config + 28, sizeof report.most_blocks);
    const bool failing = fails("CommInitRankConfig");
    const int file = failing ? -1 : open(id.internal, O_RDWR | O_CLOEXEC);
    void *shared = MAP_FAILED;
    if (file >= 0) {
        shared = mmap(NULL, sizeof(Clique), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    if (shared == MAP_FAILED) {
        pthread_mutex_unlock(&lock);
        return failing ? INTERNAL_ERROR : REMOTE_ERROR; /* REMOTE_ERROR: the process that made the id has ended */
    }
    *made = calloc(1, sizeof **made);
    **made = (Comm){.clique = shared, .ranks = ranks, .rank = rank};
    atomic_fetch_add(&(*made)->clique->joined, 1);
    report.communicators++;
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm *comm, int *code)
{
    pthread_mutex_lock(&lock);
    if (setting.asked_fails_at && ++asked == setting.asked_fails_at)
        comm->async = REMOTE_ERROR;
    const _Atomic int *here = comm->finalizes ? &comm->clique->finalized : &comm->clique->joined;
    const bool done = atomic_load(here) >= comm->ranks && comm->asked++ > 0;
    *code = comm->async ? comm->async : done ? OK : IN_PROGRESS;
    pthread_mutex_unlock(&lock);
    if (done && !comm->async)
        submit(comm);
    return OK;
}

/* Begins a barrier of all ranks: CommGetAsyncError says when all have called this. */
int ncclCommFinalize(Comm *comm)
{
    pthread_mutex_lock(&lock);
    const bool failing = fails("CommFinalize");
    if (!failing) {
        comm->finalizes = true;
        comm->asked = 0;
        atomic_fetch_add(&comm->clique->finalized, 1);
    }
    pthread_mutex_unlock(&lock);
    return failing ? INTERNAL_ERROR : IN_PROGRESS;
}

static void end(Comm *comm)
{
    pthread_mutex_lock(&lock);
    /* operations left in streams read this flag, so CommAbort frees *comm only at the end of the test */
    comm->aborted = true;
    munmap(comm->clique, sizeof *comm->clique);
    report.communicators--;
    pthread_mutex_unlock(&lock);
    submit(comm);
}

int ncclCommDestroy(Comm *comm)
{
    pthread_mutex_lock(&lock);
    const bool failing = fails("CommDestroy");
    report.early_ends += !comm->finalizes || atomic_load(&comm->clique->finalized) < comm->ranks;
    pthread_mutex_unlock(&lock);
    end(comm);
    free(comm);
    return failing ? INTERNAL_ERROR : OK;
}

int ncclCommAbort(Comm *comm)
{
    end(comm);
    mock_at_end(comm);
    return OK;
}

int ncclGroupStart(void)
{
    pthread_mutex_lock(&lock);
    const bool failing = fails("GroupStart");
    pthread_mutex_unlock(&lock);
    if (failing)
        return INTERNAL_ERROR;
    if (depth++ == 0)
        open_group = calloc(1, sizeof *open_group);
    return OK;
}

static bool greets(const Group *group)
{
    bool all = true;
    for (int i = 0; i < group->count; i++)
        all &= group->transfers[i].bytes == 1;
    return all;
}

int ncclGroupEnd(void)
{
    Group *group = open_group;
    if (depth == 0)
        return INVALID_USAGE;
    if (--depth > 0)
        return OK;
    open_group = NULL;
    pthread_mutex_lock(&lock);
    const bool failing = fails("GroupEnd");
    if (!failing && group->comm) {
        group->greets = greets(group);
        report.groups++;
        report.transfers += group->count;
        if (!group->greets && group->count > report.most_transfers)
            report.most_transfers = group->count;
        report.early_uses += group->comm->waiting != NULL;
        group->comm->waiting = group;
        group->comm->asked = 0;
    } else {
        free(group);
    }
    pthread_mutex_unlock(&lock);
    return failing ? INTERNAL_ERROR : IN_PROGRESS;
}

static int add(bool is_send, void *memory, size_t count, int type, int peer, Comm *comm, CudaStream *stream)
{
    pthread_mutex_lock(&lock);
    const bool failing = fails(is_send ? "Send" : "Recv");
    pthread_mutex_unlock(&lock);
    if (failing)
        return INTERNAL_ERROR;
    if (!open_group || open_group->count == TRANSFERS_MAX || peer >= comm->ranks)
        return INVALID_USAGE;
    open_group->comm = comm;
    open_group->stream = stream;
    open_group->transfers[open_group->count++] =
        (Transfer){.is_send = is_send, .memory = memory, .bytes = count * (type == 7 ? 4 : 1), .peer = peer};
    return OK;
}

int ncclSend(const void *memory, size_t count, int type, int peer, Comm *comm, CudaStream *stream)
{
    return add(true, (void *)(uintptr_t)memory, count, type, peer, comm, stream);
}

int ncclRecv(void *memory, size_t count, int type, int peer, Comm *comm, CudaStream *stream)
{
    return add(false, memory, count, type, peer, comm, stream);
}
