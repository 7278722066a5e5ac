/* The world of processes: pulses, waits, transfers, `gather`, the abort of a run, and the barrier at the end of a good
   run. */
#include "runtime/transport/mpi.h"

#include "base/clock.h"
#include "base/plugin.h"
#include "runtime/launcher/launched.h"
#include "runtime/transport/limit.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TAG_NOTICE,  /* on `aside`: the reason of an abort */
    TAG_PULSE,   /* on `aside`: the sender makes progress */
    SPINS = 256, /* tests before a waiting thread yields its processor */
    NAP_NANOSECONDS = 20000,
    /* if a wait has not read the clock for this time or longer, the process was stopped; the gap does not count as
       waiting */
    PAUSE_NANOSECONDS = 1000000000,
};

/* --- failure --- */

/* Called at exit after a failure. MPI_Finalize would wait for processes that may never call it. MPI_Abort ends the
   whole job at once, even if the launcher ignores the exit status of a process. At exit all messages have been
   printed. */
static void leave(void)
{
    fflush(NULL);
    launched_await_reader();
    MPI_Abort(MPI_COMM_WORLD, STATUS_RUN_FAILED);
}

static atomic_bool leaving;

void mpi_leave_at_exit(void)
{
    if (!atomic_exchange(&leaving, true))
        atexit(leave);
}

bool mpi_is_leaving(void) { return atomic_load(&leaving); }

Status mpi_failure(int code, const char *call, Error *error)
{
    char words[MPI_MAX_ERROR_STRING];
    int length = 0;
    mpi_leave_at_exit();
    MPI_Error_string(code, words, &length);
    return error_set(error, STATUS_RUN_FAILED, "%s: %.*s", call, length, words);
}

static Status aborted_failure(const MpiWorld *world, Error *error)
{
    mpi_leave_at_exit();
    return error_set(error, STATUS_RUN_FAILED, "%s", world->reason);
}

/* Receives a notice or a pulse, if one has come and the run is not aborted. This call also makes MPI progress: large
   messages move only during calls of MPI. The caller holds the lock. */
static int look_aside(MpiWorld *world)
{
    int there = 0;
    MPI_Status from;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world->aside, &there, &from);
    if (code != MPI_SUCCESS || !there || atomic_load(&world->aborted))
        return code;
    code = MPI_Recv(world->reason, sizeof world->reason, MPI_CHAR, from.MPI_SOURCE, from.MPI_TAG, world->aside,
                    MPI_STATUS_IGNORE);
    if (from.MPI_TAG == TAG_NOTICE) {
        atomic_store(&world->aborted, true);
    } else {
        atomic_store(&world->alive, clock_nanoseconds());
        world->heard++;
    }
    return code;
}

/* Sends `text` to all other members, without waiting: from now on `text` must stay as it is. The caller holds the
   lock. */
static void tell_others(MpiWorld *world, int tag, const char *text)
{
    for (int member = 0; member < world->world.config.size; member++) {
        MPI_Request request;
        if (member != world->world.number &&
            MPI_Isend(text, (int)strlen(text) + 1, MPI_CHAR, member, tag, world->aside, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

/* --- the pulse: while a member makes progress, it sends pulses, and each pulse restarts the deadlines of the others;
   so a pass may take longer than the deadline. A member that waits, or whose thread gets no processor time, makes no
   progress --- */

static int64_t processor_time(const MpiWorld *world)
{
    struct timespec used = {0};
    clock_gettime(world->clock, &used);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

static void *pulse_main(void *argument)
{
    MpiWorld *world = argument;
    const double seconds = world->world.config.deadline / 8 < 5 ? world->world.config.deadline / 8 : 5;
    uint64_t waited = 0;
    int64_t used = 0;
    pthread_mutex_lock(&world->lock);
    while (!world->closed) {
        const struct timespec until = clock_timespec(clock_nanoseconds() + (int64_t)(seconds * 1e9));
        pthread_cond_timedwait(&world->closing, &world->lock, &until);
        if (world->closed || atomic_load(&world->aborted) || atomic_load(&leaving))
            break;
        const int64_t now_used = processor_time(world);
        const uint64_t now_waited = atomic_load(&world->waited);
        if (now_waited != waited || (now_used != used && !atomic_load(&world->waits))) {
            tell_others(world, TAG_PULSE, "");
            world->told++;
        }
        waited = now_waited;
        used = now_used;
    }
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

/* Starts no thread if there are no other members or no deadline. It is no failure if the thread cannot be started: the
   deadline then limits each wait separately. */
void mpi_start_pulse(MpiWorld *world)
{
    clock_condition(&world->closing);
    world->pulses = world->world.config.size > 1 && world->world.config.deadline > 0 &&
                    pthread_getcpuclockid(pthread_self(), &world->clock) == 0 &&
                    pthread_create(&world->pulse, NULL, pulse_main, world) == 0;
}

static void stop_pulse(MpiWorld *world)
{
    pthread_mutex_lock(&world->lock);
    world->closed = true;
    pthread_cond_signal(&world->closing);
    pthread_mutex_unlock(&world->lock);
    if (world->pulses)
        pthread_join(world->pulse, NULL);
}

/* --- waiting --- */

/* Whether the arrival of the transfer over the imitated network is known and more than NAP_NANOSECONDS away. */
static bool is_under_way(const MpiTransfer *transfer)
{
    return transfer->link && transfer->arrival != INT64_MAX &&
           transfer->arrival > clock_nanoseconds() + NAP_NANOSECONDS;
}

static void give_way(const MpiWorld *world, const MpiTransfer *transfer, unsigned tries)
{
    const bool sleeps = is_under_way(transfer) || (world->crowded && tries >= 2 * SPINS);
    if (sleeps)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
    else if (tries >= SPINS)
        sched_yield();
}

Status mpi_test(MpiWorld *world, MpiTransfer *transfer, bool *done, Error *error)
{
    int tested = 0;
    pthread_mutex_lock(&world->lock);
    int code = MPI_Test(&transfer->request, &tested, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && tested && transfer->link)
        code = mpi_link_test(world, transfer, &tested);
    pthread_mutex_unlock(&world->lock);
    *done = tested;
    return code == MPI_SUCCESS ? STATUS_OK : mpi_failure(code, "MPI_Test", error);
}

/* How long a wait has lasted without a pulse of another member. */
typedef struct Patience {
    int64_t looked; /* when the wait last looked at the clock, in ns; 0: not yet */
    int64_t seen;   /* MpiWorld.alive at that look */
    int64_t quiet;
} Patience;

static bool is_over(MpiWorld *world, Patience *patience)
{
    const int64_t now = clock_nanoseconds(), alive = atomic_load(&world->alive);
    if (patience->looked == 0)
        atomic_store(&world->waits, true);
    else if (alive != patience->seen)
        patience->quiet = 0;
    /* after a longer gap the process was stopped: the gap does not count as waiting */
    else if (now - patience->looked < PAUSE_NANOSECONDS)
        patience->quiet += now - patience->looked;
    patience->looked = now;
    patience->seen = alive;
    const double deadline = world->world.config.deadline;
    return deadline > 0 && (double)patience->quiet * 1e-9 > deadline;
}

static Status await(MpiWorld *world, MpiTransfer *transfer, int member, Patience *patience, Error *error)
{
    for (unsigned tries = 0;; tries++) {
        bool done;
        TRY(mpi_test(world, transfer, &done, error));
        if (!done && tries % 16 == 15)
            TRY(mpi_progress(&world->world, error));
        if (atomic_load(&world->aborted))
            return aborted_failure(world, error);
        if (done)
            return STATUS_OK;
        if ((tries % 64 == 63 || (world->crowded && tries > 2 * SPINS)) && is_over(world, patience)) {
            mpi_leave_at_exit();
            return world_no_answer(&world->world, member, world->world.config.deadline, error);
        }
        give_way(world, transfer, tries);
    }
}

Status mpi_await(MpiWorld *world, MpiTransfer *transfer, int member, Error *error)
{
    Patience patience = {0};
    const Status status = await(world, transfer, member, &patience, error);
    if (patience.looked) {
        atomic_store(&world->waits, false);
        atomic_fetch_add(&world->waited, 1);
    }
    return status;
}

/* --- transfers --- */

/* Counts of MPI are of type int. So the unit is a float if the size is a multiple of 4 bytes: then a message can have
   almost 8 GiB. */
Status mpi_start(MpiWorld *world, bool is_send, int tag, void *memory, size_t bytes, int member, MpiTransfer *transfer,
                 Error *error)
{
    const bool floats = bytes % sizeof(float) == 0;
    const MPI_Datatype type = floats ? MPI_FLOAT : MPI_BYTE;
    const size_t count = floats ? bytes / sizeof(float) : bytes;
    if (count > INT_MAX) {
        mpi_leave_at_exit();
        return error_set(error, STATUS_RUN_FAILED,
                         "MPI cannot send %zu bytes in one message (the limit is 2 GiB, or 8 GiB for a multiple of 4 "
                         "bytes): use smaller "
                         "microbatches",
                         bytes);
    }
    *transfer = (MpiTransfer){.link = NULL};
    pthread_mutex_lock(&world->lock);
    int code = MPI_SUCCESS;
    if (tag != TAG_GATHER && world_linked(&world->world.config, world->world.number, member))
        code = mpi_link_start(world, is_send, mpi_tag_of_all_to_alls(tag), tag, bytes, member, transfer);
    if (code == MPI_SUCCESS)
        code = is_send ? MPI_Isend(memory, (int)count, type, member, tag, world->members, &transfer->request)
                       : MPI_Irecv(memory, (int)count, type, member, tag, world->members, &transfer->request);
    pthread_mutex_unlock(&world->lock);
    if (code != MPI_SUCCESS)
        return mpi_failure(code, is_send ? "MPI_Isend" : "MPI_Irecv", error);
    return STATUS_OK;
}

static Status poke(MpiWorld *world, Error *error)
{
    pthread_mutex_lock(&world->lock);
    const int code = look_aside(world);
    pthread_mutex_unlock(&world->lock);
    if (code != MPI_SUCCESS)
        return mpi_failure(code, "MPI_Iprobe", error);
    return atomic_load(&world->aborted) ? aborted_failure(world, error) : STATUS_OK;
}

Status mpi_progress(World *base, Error *error)
{
    MpiWorld *world = (MpiWorld *)base;
    TRY(poke(world, error));
    TRY(mpi_all_to_alls_advance(world, error));
    return mpi_sums_advance(world, error);
}

static Status mpi_gather(World *base, const void *mine, size_t bytes, void *all, Error *error)
{
    MpiWorld *world = (MpiWorld *)base;
    const int size = base->config.size;
    char *own = (char *)all + (size_t)base->number * bytes;
    memmove(own, mine, bytes);
    for (int member = 0; member < size; member++) {
        MpiTransfer *transfers = &world->transfers[2 * member];
        if (member == base->number)
            continue;
        TRY(mpi_start(world, false, TAG_GATHER, (char *)all + (size_t)member * bytes, bytes, member, &transfers[0],
                      error));
        TRY(mpi_start(world, true, TAG_GATHER, own, bytes, member, &transfers[1], error));
    }
    for (int i = 0; i < 2 * size; i++)
        if (i / 2 != base->number)
            TRY(mpi_await(world, &world->transfers[i], i / 2, error));
    return STATUS_OK;
}

/* --- the run --- */

static void mpi_abort(World *base, const char *reason)
{
    MpiWorld *world = (MpiWorld *)base;
    mpi_leave_at_exit();
    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted)) {
        world_ending(base, reason, world->reason, sizeof world->reason);
        atomic_store(&world->aborted, true);
        tell_others(world, TAG_NOTICE, world->reason);
    }
    pthread_mutex_unlock(&world->lock);
}

static void world_free(MpiWorld *world)
{
    pthread_mutex_destroy(&world->lock);
    pthread_cond_destroy(&world->closing);
    free(world->transfers);
    free(world->links);
    free(world);
}

/* A barrier at the end of the run. Members exchange how many pulses they have sent; *expected becomes the number that
   this member should have received. */
static Status meet_at_end(MpiWorld *world, uint64_t *expected, Error *error)
{
    const int size = world->world.config.size;
    uint64_t *told = malloc((size_t)size * sizeof *told);
    if (!told)
        return error_set(error, STATUS_RUN_FAILED, "there is no memory for the barrier at the end of the run");
    const Status status = mpi_gather(&world->world, &world->told, sizeof *told, told, error);
    for (int member = 0; status == STATUS_OK && member < size; member++)
        *expected += member == world->world.number ? 0 : told[member];
    free(told);
    return status;
}

/* Closes the world. After a failure it frees nothing, because MPI may still send from this memory until the process
   exits. */
static void mpi_close(World *base)
{
    MpiWorld *world = (MpiWorld *)base;
    if (mpi_is_leaving())
        return;
    Error error;
    uint64_t expected = 0;
    stop_pulse(world);
    Status status = meet_at_end(world, &expected, &error);
    const MemberName name = world_member_name(&base->config, base->number);
    Limit limit = {.seconds = base->config.quiet_deadline, .who = &base->config};
    snprintf(limit.words, sizeof limit.words, "%s has finished, but not all ranks have finished", name.text);
    limit_begin(&limit);
    while (status == STATUS_OK && world->heard < expected) /* waits until no pulse to this member is in flight */
        status = poke(world, &error);
    if (status != STATUS_OK) {
        limit_end(&limit);
        /* mpi_close returns no error, so it prints this one itself */
        fprintf(stderr, "dprun: %s has finished, but the run fails: %s\n", name.text, error.text);
        mpi_leave_at_exit();
        return;
    }
    MPI_Comm_free(&world->aside);
    MPI_Comm_free(&world->times);
    MPI_Comm_free(&world->members);
    MPI_Finalize();
    limit_end(&limit);
    world_free(world);
}

DEFINE_PLUGIN

const WorldTable world_mpi = {
    .open = mpi_open,
    .gather = mpi_gather,
    .progress = mpi_progress,
    .abort = mpi_abort,
    .close = mpi_close,
    .connect = mpi_connect,
};
