#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/standin/standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INTERNAL_ERROR = 3, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7, RANKS_MAX = 16, TRANSFERS_MAX = 64 };

typedef struct Transfer {
    bool is_send, done;
    void *memory;
    size_t bytes;
    int peer;
} Transfer;

typedef struct Clique Clique;
typedef struct ncclComm Comm;

typedef struct Group {
    Comm *comm;
    CudaStream *stream;
    int count;
    bool first;
    Transfer transfers[TRANSFERS_MAX];
} Group;

struct Clique {
    char name[128];
    int ranks, joined, left;
    Group *current[RANKS_MAX];
    bool connected[RANKS_MAX][RANKS_MAX];
    Clique *next;
};

struct ncclComm {
    Clique *clique;
    int rank, groups;
    unsigned asked;  /* since the last call */
    Group *waiting;  /* ended and not enqueued yet */
    bool aborted, in_use;
    int async;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FakeNccl setting = {.silent_rank = -1};
static FakeNcclReport report;
static Clique *cliques;
static int ids, calls, asked;
static _Thread_local Group *open_group;
static _Thread_local int depth;

void fake_nccl_begin(const FakeNccl *new_setting);
void fake_nccl_begin(const FakeNccl *new_setting)
{
    pthread_mutex_lock(&lock);
    setting = *new_setting;
    report = (FakeNcclReport){0};
    calls = asked = 0;
    while (cliques) {
        Clique *next = cliques->next;
        free(cliques);
        cliques = next;
    }
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

/* --- groups meet: under the stand-in's lock --- */

static Transfer *other_end(Group *group, bool is_send, int peer)
{
    for (int i = 0; group && i < group->count; i++)
        if (group->transfers[i].is_send == is_send && group->transfers[i].peer == peer && !group->transfers[i].done)
            return &group->transfers[i];
    return NULL;
}

static bool attempt(void *data)
{
    Group *group = data;
    Comm *comm = group->comm;
    Clique *clique = comm->clique;
    bool all = true;
    pthread_mutex_lock(&lock);
    if (!comm->aborted && (comm->rank != setting.silent_rank || group->first)) {
        clique->current[comm->rank] = group;
        for (int i = 0; i < group->count; i++) {
            Transfer *mine = &group->transfers[i], *other = NULL;
            if (!mine->done)
                other = other_end(clique->current[mine->peer], !mine->is_send, comm->rank);
            if (other) {
                report.mismatches += mine->bytes != other->bytes;
                report.late_connections += !group->first && !clique->connected[comm->rank][mine->peer];
                clique->connected[comm->rank][mine->peer] = clique->connected[mine->peer][comm->rank] = true;
                const Transfer *from = mine->is_send ? mine : other, *to = mine->is_send ? other : mine;
                memmove(to->memory, from->memory, to->bytes < from->bytes ? to->bytes : from->bytes);
                mine->done = other->done = true;
            }
            all &= mine->done;
        }
        if (all)
            clique->current[comm->rank] = NULL;
    } else {
        all = comm->aborted;
        if (clique->current[comm->rank] == group)
            clique->current[comm->rank] = NULL;
    }
    pthread_mutex_unlock(&lock);
    return all;
}

static void submit(Comm *comm)
{
    Group *group = comm->waiting;
    StandinAccess accesses[TRANSFERS_MAX];
    comm->waiting = NULL;
    if (!group)
        return;
    for (int i = 0; i < group->count; i++)
        accesses[i] = (StandinAccess){group->transfers[i].memory, group->transfers[i].bytes, !group->transfers[i].is_send};
    standin_enqueue(group->stream, attempt, group, accesses, (size_t)group->count);
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
    id->internal[0] = (char)++ids;
    id->internal[1] = 'x';
    pthread_mutex_unlock(&lock);
    return failing ? INTERNAL_ERROR : OK;
}

int ncclCommInitRankConfig(Comm **made, int ranks, Id id, int rank, const void *config)
{
    int blocking;
    memcpy(&blocking, (const char *)config + sizeof(size_t) + 2 * sizeof(unsigned), sizeof blocking);
    if (ranks > RANKS_MAX || id.internal[1] != 'x' || blocking != 0)
        return INVALID_USAGE;
    pthread_mutex_lock(&lock);
    if (fails("CommInitRankConfig")) {
        pthread_mutex_unlock(&lock);
        return INTERNAL_ERROR;
    }
    Clique *clique = cliques;
    while (clique && memcmp(clique->name, id.internal, sizeof clique->name) != 0)
        clique = clique->next;
    if (!clique) {
        clique = calloc(1, sizeof *clique);
        memcpy(clique->name, id.internal, sizeof clique->name);
        clique->ranks = ranks;
        clique->next = cliques;
        cliques = clique;
    }
    clique->joined++;
    *made = calloc(1, sizeof **made);
    (*made)->clique = clique;
    (*made)->rank = rank;
    report.communicators++;
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm *comm, int *code)
{
    pthread_mutex_lock(&lock);
    if (setting.asked_fails_at && ++asked == setting.asked_fails_at)
        comm->async = REMOTE_ERROR;
    const bool done = comm->clique->joined >= comm->clique->ranks && comm->asked++ > 0;
    *code = comm->async ? comm->async : done ? OK : IN_PROGRESS;
    pthread_mutex_unlock(&lock);
    if (done && !comm->async)
        submit(comm);
    return OK;
}

static void end(Comm *comm)
{
    pthread_mutex_lock(&lock);
    comm->aborted = true; /* whoever is in a stream sees it there, so the memory stays until the end of the test */
    report.communicators--;
    pthread_mutex_unlock(&lock);
    submit(comm);
}

int ncclCommDestroy(Comm *comm)
{
    pthread_mutex_lock(&lock);
    const bool failing = fails("CommDestroy");
    pthread_mutex_unlock(&lock);
    end(comm);
    free(comm);
    return failing ? INTERNAL_ERROR : OK;
}

int ncclCommAbort(Comm *comm)
{
    end(comm);
    standin_at_end(comm);
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
        group->first = group->comm->groups++ == 0;
        report.groups++;
        report.transfers += group->count;
        if (!group->first && group->count > report.most_transfers)
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
    if (!open_group || open_group->count == TRANSFERS_MAX || peer >= comm->clique->ranks)
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
