#include "runtime/base/clock.h"
#include "runtime/base/counted.h"
#include "runtime/launcher/launched.h"
#include "runtime/transport/sum.h"
#include "runtime/transport/transport.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One rank a process. The only file that knows MPI; built as a shared object of its own. */

enum {
    TAG_MESSAGE,                    /* between stages */
    TAG_MEETING,                    /* of gather and reduce */
    TAG_NOTICE,                     /* the text of abort */
    TAG_PULSE,                      /* a rank moves */
    SPINS = 256,                    /* tests before a wait gives way to others */
    PAUSE_NANOSECONDS = 1000000000, /* between two looks at the clock: the process was stopped */
    POKE_NANOSECONDS = 5000,        /* progress does nothing more often than this */
    REDUCE_PIECE = 1 << 20,         /* elements that are summed at a time: bounds the memory for what others send */
};

typedef struct Piece {
    char *memory;
    size_t bytes;
} Piece;

struct Endpoint {
    MPI_Comm ranks; /* a process's number in it is its rank */
    MPI_Comm aside; /* the same ranks, for what may come at any time: notices and pulses */
    int rank, count;
    const int *rank_map;
    double deadline, quiet_deadline;
    bool crowded;         /* more processes than processors: a wait must give its processor away */
    pthread_mutex_t lock; /* held during every call of MPI after open: abort may come from any thread */
    int64_t last_poke;
    atomic_bool aborted; /* set once, after `reason` was written under the lock */
    char reason[512];
    /* the pulse */
    pthread_t pulse;
    bool pulses;            /* the thread is there */
    pthread_cond_t closing; /* with the lock */
    bool closed;
    clockid_t clock;         /* the processor time of the rank's own thread */
    atomic_bool waits;       /* it has been waiting for a while */
    _Atomic uint64_t waited; /* how often it has */
    _Atomic int64_t alive;   /* when another rank last told that it moves */
    uint64_t told, heard;    /* pulses to each of the others, from all of them; under the lock */
    MPI_Request *requests;   /* [2 * count], of a meeting */
    Piece *in, *out;         /* [count], of a meeting */
    void **parts;            /* [count], of reduce */
    char *received;          /* of reduce; made when first used, grows up to about REDUCE_PIECE numbers */
    size_t received_bytes;
};

/* The caller keeps an MPI_Request in Message.request: a pointer in some MPIs, a number in others. */
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits into the message");

/* --- failure --- */

/* After a failure MPI_Finalize would wait for peers that may never come. MPI_Abort ends the whole job at once, also
   where the launcher does not care about the exit status of a process; it runs when everything has been said. */
static void leave(void)
{
    fflush(NULL);
    launched_await_reader();
    MPI_Abort(MPI_COMM_WORLD, STATUS_RUN_FAILED);
}

static atomic_bool leaving;

static void leave_at_exit(void)
{
    if (!atomic_exchange(&leaving, true))
        atexit(leave);
}

static Status failure_of(int code, const char *what, Error *error)
{
    char words[MPI_MAX_ERROR_STRING];
    int length = 0;
    leave_at_exit();
    MPI_Error_string(code, words, &length);
    return error_set(error, STATUS_RUN_FAILED, "%s: %.*s", what, length, words);
}

static Status aborted_failure(const Endpoint *endpoint, Error *error)
{
    leave_at_exit();
    return error_set(error, STATUS_RUN_FAILED, "%s", endpoint->reason);
}

/* Under the lock. Also drives MPI: this is what makes large messages move. */
static int look_aside(Endpoint *endpoint)
{
    int there = 0;
    MPI_Status from;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, endpoint->aside, &there, &from);
    if (code != MPI_SUCCESS || !there || atomic_load(&endpoint->aborted))
        return code;
    code = MPI_Recv(endpoint->reason, sizeof endpoint->reason, MPI_CHAR, from.MPI_SOURCE, from.MPI_TAG, endpoint->aside,
                    MPI_STATUS_IGNORE);
    if (from.MPI_TAG == TAG_NOTICE) {
        atomic_store(&endpoint->aborted, true);
    } else {
        atomic_store(&endpoint->alive, clock_nanoseconds());
        endpoint->heard++;
    }
    return code;
}

/* Under the lock. */
static void tell_others(Endpoint *endpoint, int tag, const char *text)
{
    for (int rank = 0; rank < endpoint->count; rank++) {
        MPI_Request request;
        if (rank != endpoint->rank &&
            MPI_Isend(text, (int)strlen(text) + 1, MPI_CHAR, rank, tag, endpoint->aside, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

/* --- the pulse: as long as a rank moves, the others' deadlines begin anew, also while it computes for longer than
   that. A rank that waits does not move, nor does one whose thread gets no processor time --- */

static int64_t processor_time(const Endpoint *endpoint)
{
    struct timespec used = {0};
    clock_gettime(endpoint->clock, &used);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

static void *pulse_main(void *argument)
{
    Endpoint *endpoint = argument;
    const double seconds = endpoint->deadline / 8 < 5 ? endpoint->deadline / 8 : 5;
    uint64_t waited = 0;
    int64_t used = 0;
    pthread_mutex_lock(&endpoint->lock);
    while (!endpoint->closed) {
        const int64_t until = clock_nanoseconds() + (int64_t)(seconds * 1e9);
        pthread_cond_timedwait(&endpoint->closing, &endpoint->lock,
                               &(struct timespec){.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000});
        if (endpoint->closed || atomic_load(&endpoint->aborted) || atomic_load(&leaving))
            break;
        const int64_t now_used = processor_time(endpoint);
        const uint64_t now_waited = atomic_load(&endpoint->waited);
        if (now_waited != waited || (now_used != used && !atomic_load(&endpoint->waits))) {
            tell_others(endpoint, TAG_PULSE, "");
            endpoint->told++;
        }
        waited = now_waited;
        used = now_used;
    }
    pthread_mutex_unlock(&endpoint->lock);
    return NULL;
}

static void condition_of_monotonic_clock(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Without the thread, which is no failure, a single wait is all that the deadline sees. */
static void start_pulse(Endpoint *endpoint)
{
    condition_of_monotonic_clock(&endpoint->closing);
    endpoint->pulses = endpoint->count > 1 && endpoint->deadline > 0 &&
                       pthread_getcpuclockid(pthread_self(), &endpoint->clock) == 0 &&
                       pthread_create(&endpoint->pulse, NULL, pulse_main, endpoint) == 0;
}

static void stop_pulse(Endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->lock);
    endpoint->closed = true;
    pthread_cond_signal(&endpoint->closing);
    pthread_mutex_unlock(&endpoint->lock);
    if (endpoint->pulses)
        pthread_join(endpoint->pulse, NULL);
}

/* --- calls of MPI that wait for others and cannot be left: after the deadline the process ends within them --- */

typedef struct Limit {
    double seconds;
    char words[96]; /* what has not come about */
    const int *rank_map;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watched, over;
} Limit;

static void *limit_main(void *argument)
{
    Limit *limit = argument;
    const int64_t until = clock_nanoseconds() + (int64_t)(limit->seconds * 1e9);
    const struct timespec end = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int late = 0;
    pthread_mutex_lock(&limit->lock);
    while (!limit->over && late == 0)
        late = pthread_cond_timedwait(&limit->changed, &limit->lock, &end);
    if (!limit->over) {
        char missing[256];
        launched_missing(limit->rank_map, missing, sizeof missing);
        fprintf(stderr, "dprun: %s within %g s (--deadline)%s\n", limit->words, limit->seconds, missing);
        launched_await_reader();
        _exit(STATUS_RUN_FAILED); /* which the launcher sees, and ends the others */
    }
    pthread_mutex_unlock(&limit->lock);
    return NULL;
}

static void limit_begin(Limit *limit, double seconds)
{
    limit->seconds = seconds;
    limit->over = false;
    pthread_mutex_init(&limit->lock, NULL);
    condition_of_monotonic_clock(&limit->changed);
    limit->watched = seconds > 0 && pthread_create(&limit->thread, NULL, limit_main, limit) == 0;
}

static void limit_end(Limit *limit)
{
    pthread_mutex_lock(&limit->lock);
    limit->over = true;
    pthread_cond_signal(&limit->changed);
    pthread_mutex_unlock(&limit->lock);
    if (limit->watched)
        pthread_join(limit->thread, NULL);
    pthread_cond_destroy(&limit->changed);
    pthread_mutex_destroy(&limit->lock);
}

/* --- waiting --- */

static void give_way(const Endpoint *endpoint, unsigned tries)
{
    if (tries < SPINS)
        return;
    if (!endpoint->crowded || tries < 2 * SPINS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* `looked`: when it last looked at the clock; 0: it has waited for less than a few tries. */
static Status await_looking(Endpoint *endpoint, MPI_Request *request, int peer, int64_t *looked, Error *error)
{
    int64_t quiet = 0, seen = 0; /* how long nobody has told that it moves, and when somebody last did */
    for (unsigned tries = 0;; tries++) {
        int done = 0;
        pthread_mutex_lock(&endpoint->lock);
        int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !done && tries % 16 == 15)
            code = look_aside(endpoint);
        pthread_mutex_unlock(&endpoint->lock);
        if (code != MPI_SUCCESS)
            return failure_of(code, "MPI_Test", error);
        if (atomic_load(&endpoint->aborted))
            return aborted_failure(endpoint, error);
        if (done)
            return STATUS_OK;
        if (tries % 64 == 63 || (endpoint->crowded && tries > 2 * SPINS)) {
            const int64_t now = clock_nanoseconds(), alive = atomic_load(&endpoint->alive);
            if (*looked == 0)
                atomic_store(&endpoint->waits, true);
            else if (alive != seen)
                quiet = 0;
            else if (now - *looked < PAUSE_NANOSECONDS) /* who was stopped has not waited, nor could others be heard */
                quiet += now - *looked;
            *looked = now;
            seen = alive;
            if (endpoint->deadline > 0 && (double)quiet * 1e-9 > endpoint->deadline) {
                leave_at_exit();
                return error_set(error, STATUS_RUN_FAILED, "no answer from rank %d within %g s (--deadline)", peer,
                                 endpoint->deadline);
            }
        }
        give_way(endpoint, tries);
    }
}

static Status await(Endpoint *endpoint, MPI_Request *request, int peer, Error *error)
{
    int64_t looked = 0;
    const Status status = await_looking(endpoint, request, peer, &looked, error);
    if (looked) {
        atomic_store(&endpoint->waits, false);
        atomic_fetch_add(&endpoint->waited, 1);
    }
    return status;
}

/* --- messages --- */

/* MPI counts in int: what is a number of floats goes up to 8 GiB. */
static Status start(Endpoint *endpoint, bool is_send, int tag, void *memory, size_t bytes, int peer,
                    MPI_Request *request, Error *error)
{
    const bool floats = bytes % sizeof(float) == 0;
    const MPI_Datatype type = floats ? MPI_FLOAT : MPI_BYTE;
    const size_t count = floats ? bytes / sizeof(float) : bytes;
    if (count > INT_MAX) {
        leave_at_exit();
        return error_set(error, STATUS_RUN_FAILED, "a message of %zu bytes is more than MPI takes", bytes);
    }
    pthread_mutex_lock(&endpoint->lock);
    const int code = is_send ? MPI_Isend(memory, (int)count, type, peer, tag, endpoint->ranks, request)
                             : MPI_Irecv(memory, (int)count, type, peer, tag, endpoint->ranks, request);
    pthread_mutex_unlock(&endpoint->lock);
    if (code != MPI_SUCCESS)
        return failure_of(code, is_send ? "MPI_Isend" : "MPI_Irecv", error);
    return STATUS_OK;
}

static Status post(Endpoint *endpoint, bool is_send, Message *message, Error *error)
{
    MPI_Request request;
    TRY(start(endpoint, is_send, TAG_MESSAGE, *message->block, message->bytes, message->peer, &request, error));
    memcpy(&message->request, &request, sizeof request);
    return STATUS_OK;
}

static Status mpi_send(Endpoint *endpoint, Message *message, Error *error)
{
    return post(endpoint, true, message, error);
}

static Status mpi_receive(Endpoint *endpoint, Message *message, Error *error)
{
    return post(endpoint, false, message, error);
}

static Status mpi_wait(Endpoint *endpoint, Message *message, Error *error)
{
    MPI_Request request;
    memcpy(&request, &message->request, sizeof request);
    Status status = await(endpoint, &request, message->peer, error);
    memcpy(&message->request, &request, sizeof request);
    return status;
}

static Status poke(Endpoint *endpoint, Error *error)
{
    pthread_mutex_lock(&endpoint->lock);
    const int code = look_aside(endpoint);
    pthread_mutex_unlock(&endpoint->lock);
    if (code != MPI_SUCCESS)
        return failure_of(code, "MPI_Iprobe", error);
    return atomic_load(&endpoint->aborted) ? aborted_failure(endpoint, error) : STATUS_OK;
}

static Status mpi_progress(Endpoint *endpoint, Error *error)
{
    const int64_t now = clock_nanoseconds();
    if (now - endpoint->last_poke < POKE_NANOSECONDS)
        return STATUS_OK;
    endpoint->last_poke = now;
    return poke(endpoint, error);
}

/* --- meetings --- */

/* Sends out[i] to the i-th of `members` and receives in[i] from it, for all but this rank. */
static Status exchange(Endpoint *endpoint, const int *members, int count, Error *error)
{
    int posted = 0;
    for (int i = 0; i < count; i++) {
        const int peer = members ? members[i] : i;
        if (peer == endpoint->rank)
            continue;
        const Piece in = endpoint->in[i], out = endpoint->out[i];
        MPI_Request *requests = &endpoint->requests[2 * posted++];
        TRY(start(endpoint, false, TAG_MEETING, in.memory, in.bytes, peer, &requests[0], error));
        TRY(start(endpoint, true, TAG_MEETING, out.memory, out.bytes, peer, &requests[1], error));
    }
    for (int i = 0, next = 0; i < count; i++) {
        const int peer = members ? members[i] : i;
        if (peer == endpoint->rank)
            continue;
        TRY(await(endpoint, &endpoint->requests[next++], peer, error));
        TRY(await(endpoint, &endpoint->requests[next++], peer, error));
    }
    return STATUS_OK;
}

static Status mpi_gather(Endpoint *endpoint, const void *mine, size_t bytes, void *all, Error *error)
{
    char *own = (char *)all + (size_t)endpoint->rank * bytes;
    memmove(own, mine, bytes);
    for (int rank = 0; rank < endpoint->count; rank++) {
        endpoint->in[rank] = (Piece){(char *)all + (size_t)rank * bytes, bytes};
        endpoint->out[rank] = (Piece){own, bytes};
    }
    return exchange(endpoint, NULL, endpoint->count, error);
}

/* Every member gets its slice of everybody's buffer, adds them up and sends the sums to everybody. */
static Status reduce_piece(Endpoint *endpoint, const int *members, int count, char *buffer, size_t elements,
                           size_t size, Error *error)
{
    void **parts = endpoint->parts;
    int self = 0;
    while (members[self] != endpoint->rank)
        self++;
    const size_t own = elements * (size_t)self / (size_t)count;
    const size_t length = elements * (size_t)(self + 1) / (size_t)count - own;
    for (int i = 0; i < count; i++) {
        char *slice = endpoint->received + (size_t)i * length * size;
        const size_t first = elements * (size_t)i / (size_t)count;
        const size_t end = elements * (size_t)(i + 1) / (size_t)count;
        parts[i] = i == self ? buffer + own * size : slice;
        endpoint->in[i] = (Piece){slice, length * size};
        endpoint->out[i] = (Piece){buffer + first * size, (end - first) * size};
    }
    TRY(exchange(endpoint, members, count, error));
    for (size_t at = 0; at < length; at += SUM_BLOCK) {
        SumBlock sums;
        const size_t some = length - at < SUM_BLOCK ? length - at : SUM_BLOCK;
        sum_in_order(parts, count, at, some, size, &sums);
        memcpy(buffer + (own + at) * size, &sums, some * size);
    }
    for (int i = 0; i < count; i++) {
        endpoint->in[i] = endpoint->out[i];
        endpoint->out[i] = (Piece){buffer + own * size, length * size};
    }
    return exchange(endpoint, members, count, error);
}

static Status mpi_reduce(Endpoint *endpoint, const int *members, int count, void *buffer, size_t elements, size_t size,
                         Error *error)
{
    const size_t piece = elements < REDUCE_PIECE ? elements : REDUCE_PIECE;
    const size_t needed = (piece + (size_t)count) * size; /* slices differ by one element */
    if (needed > endpoint->received_bytes) {
        free(endpoint->received);
        endpoint->received = malloc(needed);
        endpoint->received_bytes = endpoint->received ? needed : 0;
        if (!endpoint->received) {
            leave_at_exit();
            return error_set(error, STATUS_RUN_FAILED, "no memory to sum over %d ranks", count);
        }
    }
    for (size_t at = 0; at < elements; at += piece) {
        const size_t some = elements - at < piece ? elements - at : piece;
        TRY(reduce_piece(endpoint, members, count, (char *)buffer + at * size, some, size, error));
    }
    return STATUS_OK;
}

/* --- the run --- */

static void mpi_abort(Endpoint *endpoint, const char *reason)
{
    leave_at_exit();
    pthread_mutex_lock(&endpoint->lock);
    if (!atomic_load(&endpoint->aborted)) {
        snprintf(endpoint->reason, sizeof endpoint->reason, "rank %d ended the run: %s", endpoint->rank, reason);
        atomic_store(&endpoint->aborted, true);
        tell_others(endpoint, TAG_NOTICE, endpoint->reason);
    }
    pthread_mutex_unlock(&endpoint->lock);
}

static void endpoint_free(Endpoint *endpoint)
{
    pthread_mutex_destroy(&endpoint->lock);
    pthread_cond_destroy(&endpoint->closing);
    free(endpoint->requests);
    free(endpoint->parts);
    free(endpoint->in);
    free(endpoint->out);
    free(endpoint->received);
    free(endpoint);
}

/* All have come to the end and tell how many pulses they have sent. */
static Status meet_at_end(Endpoint *endpoint, uint64_t *expected, Error *error)
{
    uint64_t *told = malloc((size_t)endpoint->count * sizeof *told);
    if (!told)
        return error_set(error, STATUS_RUN_FAILED, "there is no memory for its end");
    const Status status = mpi_gather(endpoint, &endpoint->told, sizeof *told, told, error);
    for (int rank = 0; status == STATUS_OK && rank < endpoint->count; rank++)
        *expected += rank == endpoint->rank ? 0 : told[rank];
    free(told);
    return status;
}

/* After a failure the endpoint stays: MPI may still be sending from it until the process leaves. */
static void mpi_close(Endpoint *endpoint)
{
    if (atomic_load(&leaving))
        return;
    Error error;
    uint64_t expected = 0;
    stop_pulse(endpoint);
    Status status = meet_at_end(endpoint, &expected, &error);
    Limit limit;
    snprintf(limit.words, sizeof limit.words, "rank %d is through, but not all ranks have come to their end",
             endpoint->rank);
    limit.rank_map = endpoint->rank_map;
    limit_begin(&limit, endpoint->quiet_deadline);
    while (status == STATUS_OK && endpoint->heard < expected) /* so that no pulse is under way any more */
        status = poke(endpoint, &error);
    if (status != STATUS_OK) {
        limit_end(&limit);
        /* there is nobody else to say it */
        fprintf(stderr, "dprun: rank %d is through, but %s\n", endpoint->rank, error.text);
        leave_at_exit();
        return;
    }
    MPI_Comm_free(&endpoint->aside);
    MPI_Comm_free(&endpoint->ranks);
    MPI_Finalize();
    limit_end(&limit);
    endpoint_free(endpoint);
}

/* What makes a plain mpirun on one machine fast; whatever the user has set stays. */
static void set_defaults(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    const char *all = getenv("OMPI_COMM_WORLD_SIZE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (strncmp(version, "Open MPI v4.", 12) != 0 || !all || !here || strcmp(all, here) != 0)
        return;
    setenv("OMPI_MCA_pml", "ob1", 0); /* looks for no network: half the time of starting */
    setenv("OMPI_MCA_btl", "self,vader", 0);
    /* Two copies through shared memory are faster than one by the kernel; with all pieces of a message under way at
       once few calls of progress are enough to hide it behind computing. */
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "64", 0);
}

/* Whether the processes of this machine are more than the processors that they may use together. */
static bool is_crowded(void)
{
    MPI_Comm here;
    cpu_set_t allowed;
    int processes = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &processes);
    MPI_Allreduce(MPI_IN_PLACE, &allowed, sizeof allowed, MPI_BYTE, MPI_BOR, here);
    MPI_Comm_free(&here);
    return CPU_COUNT(&allowed) > 0 && processes > CPU_COUNT(&allowed);
}

static Status wrong_processes(int ranks, int processes, Error *error)
{
    MPI_Finalize();
    if (processes == 1 && launched_processes() > 1)
        return error_set(
            error, STATUS_BAD_USAGE,
            "%d processes were started by another MPI than the one that dprun was built with: each is alone",
            launched_processes());
    return error_set(error, STATUS_BAD_USAGE, "this program has %s, but mpirun started %s: use mpirun -n %d",
                     counted((uint64_t)ranks, "rank").text, counted((uint64_t)processes, "process").text, ranks);
}

static bool is_permutation(const int *map, int count)
{
    for (int rank = 0; rank < count; rank++) {
        int named = 0;
        for (int process = 0; process < count; process++)
            named += map[process] == rank;
        if (named != 1)
            return false;
    }
    return true;
}

static Status start_mpi(const TransportConfig *config, Endpoint **endpoints, Error *error)
{
    int provided = 0, processes = 0, process = 0;
    set_defaults();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    if (processes != config->ranks)
        return wrong_processes(config->ranks, processes, error);
    if (config->rank_map && !is_permutation(config->rank_map, processes)) {
        MPI_Finalize();
        return error_set(error, STATUS_BAD_USAGE, "the rank map must name each of the ranks 0 to %d once",
                         processes - 1);
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        leave_at_exit();
        return error_set(error, STATUS_RUN_FAILED, "this MPI was built without threads");
    }

    const size_t count = (size_t)processes;
    Endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (endpoint) {
        endpoint->requests = malloc(2 * count * sizeof *endpoint->requests);
        endpoint->parts = malloc(count * sizeof *endpoint->parts);
        endpoint->in = malloc(count * sizeof *endpoint->in);
        endpoint->out = malloc(count * sizeof *endpoint->out);
    }
    if (!endpoint || !endpoint->requests || !endpoint->parts || !endpoint->in || !endpoint->out) {
        leave_at_exit();
        return error_set(error, STATUS_RUN_FAILED, "no memory for the messages of %d ranks", config->ranks);
    }
    endpoint->rank = config->rank_map ? config->rank_map[process] : process;
    endpoint->count = processes;
    endpoint->rank_map = config->rank_map;
    endpoint->deadline = config->deadline;
    endpoint->quiet_deadline = config->quiet_deadline;
    endpoint->crowded = is_crowded();
    pthread_mutex_init(&endpoint->lock, NULL);
    MPI_Comm_split(MPI_COMM_WORLD, 0, endpoint->rank, &endpoint->ranks);
    MPI_Comm_dup(endpoint->ranks, &endpoint->aside);
    MPI_Comm_set_errhandler(endpoint->ranks, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(endpoint->aside, MPI_ERRORS_RETURN);
    for (int rank = 0; rank < processes; rank++)
        endpoints[rank] = NULL;
    endpoints[endpoint->rank] = endpoint;
    start_pulse(endpoint);
    return STATUS_OK;
}

static Status mpi_open(const TransportConfig *config, Endpoint **endpoints, Error *error)
{
    Limit limit = {.words = "not all processes have started",
                   .rank_map = launched_processes() == config->ranks ? config->rank_map : NULL};
    limit_begin(&limit, config->quiet_deadline);
    const Status status = start_mpi(config, endpoints, error);
    limit_end(&limit);
    return status;
}

extern const Transport transport_mpi;
const Transport transport_mpi = {
    .name = "mpi",
    .open = mpi_open,
    .send = mpi_send,
    .receive = mpi_receive,
    .wait = mpi_wait,
    .progress = mpi_progress,
    .gather = mpi_gather,
    .reduce = mpi_reduce,
    .abort = mpi_abort,
    .close = mpi_close,
};
