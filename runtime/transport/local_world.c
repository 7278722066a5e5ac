/* The world of threads: how members sleep and wake, gather, and abort the run. */
#include "runtime/transport/local.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* how often a waiting thread checks its counter before it sleeps; once if there are more members than processors. The
   checks take tens of microseconds: longer than most transfers, shorter than most passes */
enum { SPINS = 1000 };

enum { RUNNING, ABORTING, ABORTED };

/* --- sleeping and waking --- */

static void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void local_unpark(LocalMember *member, uint32_t cause)
{
    if (atomic_load(&member->parked) == cause && atomic_compare_exchange_strong(&member->parked, &cause, 0))
        syscall(SYS_futex, &member->parked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool aborted(const Local *local) { return atomic_load(&local->state) == ABORTED; }

static bool can_help(const LocalMember *member) { return member->summing && local_sum_has_work(member); }

/* Sleeps until `counter` is at least `target` or the time `until` (ns; 0: no limit) has passed. Meanwhile this thread
   adds up units of the sums that become ready. Returns whether the counter has reached the target; false also if the
   run was aborted. No wake-up is lost: this thread sets `parked`, then reads the counter; the other one raises the
   counter, then reads `parked`; all accesses are sequentially consistent. The same holds for a sum that becomes
   ready. */
static bool park(LocalMember *member, _Atomic uint64_t *counter, uint64_t target, uint32_t cause, int64_t until)
{
    const struct timespec limit = clock_timespec(until);
    bool late = false;
    for (;;) {
        atomic_store(&member->parked, cause);
        const bool reached = atomic_load(counter) >= target, over = reached || late || aborted(member->local);
        if (!over && !can_help(member)) {
            const long slept = syscall(SYS_futex, &member->parked, FUTEX_WAIT_BITSET_PRIVATE, cause,
                                       until > 0 ? &limit : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
            late = slept != 0 && errno == ETIMEDOUT;
            continue;
        }
        atomic_store(&member->parked, 0);
        if (over)
            return reached && !aborted(member->local);
        local_sum_help(member);
    }
}

bool local_await(LocalMember *member, _Atomic uint64_t *counter, uint64_t target, uint32_t cause)
{
    const Local *local = member->local;
    for (int spin = 0; spin <= local->spins; spin++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= target)
            return !aborted(local);
        if (!member->summing || !local_sum_help(member))
            pause_processor();
    }
    const double deadline = member->world.config.deadline;
    const int64_t until = deadline > 0 ? clock_nanoseconds() + (int64_t)(deadline * 1e9) : 0;
    return park(member, counter, target, cause, until);
}

Status local_failure(const LocalMember *member, int missing, Error *error)
{
    if (aborted(member->local))
        return error_set(error, STATUS_RUN_FAILED, "%s", member->local->reason);
    return world_no_answer(&member->world, missing, member->world.config.deadline, error);
}

/* --- the imitated network --- */

int64_t local_carry(const LocalMember *member, int from, int to, bool all_to_all, int64_t ready, size_t bytes)
{
    const WorldConfig *config = &member->world.config;
    if (!bytes || !world_linked(config, from, to))
        return ready;
    return link_arrival(&config->link, &member->local->links[from * config->size + (all_to_all ? from : to)], ready,
                        bytes);
}

bool local_rest(LocalMember *member, int64_t arrival)
{
    _Atomic uint64_t never = 0;
    if (clock_nanoseconds() < arrival)
        park(member, &never, 1, ARRIVAL, arrival);
    return !aborted(member->local);
}

/* --- barriers --- */

LocalBarrier *local_barrier(int count)
{
    const size_t size = sizeof(LocalBarrier) + (size_t)count * sizeof(uint64_t);
    LocalBarrier *barrier = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!barrier)
        return NULL;
    memset(barrier, 0, size);
    barrier->count = count;
    return barrier;
}

static uint64_t round_of(const LocalBarrier *barrier, int self)
{
    return atomic_load_explicit(&barrier->rounds[self], memory_order_relaxed);
}

bool local_arrive(LocalBarrier *barrier, int self)
{
    const uint64_t round = round_of(barrier, self) + 1;
    atomic_store_explicit(&barrier->rounds[self], round, memory_order_relaxed);
    return atomic_fetch_add(&barrier->arrivals, 1) + 1 == round * (uint64_t)barrier->count;
}

int local_absent(const LocalBarrier *barrier, int self)
{
    int missing = 0;
    while (missing + 1 < barrier->count && round_of(barrier, missing) >= round_of(barrier, self))
        missing++;
    return missing;
}

/* --- the functions of the table --- */

static Status meet(LocalMember *member, Error *error)
{
    Local *local = member->local;
    const int self = member->world.number, count = member->world.config.size;
    if (local_arrive(local->everybody, self))
        for (int i = 0; i < count; i++)
            local_unpark(&local->members[i], COLLECTIVE);
    const uint64_t all = round_of(local->everybody, self) * (uint64_t)count;
    if (local_await(member, &local->everybody->arrivals, all, COLLECTIVE))
        return STATUS_OK;
    return local_failure(member, local_absent(local->everybody, self), error);
}

static Status local_gather(World *world, const void *mine, size_t bytes, void *all, Error *error)
{
    LocalMember *member = (LocalMember *)world;
    LocalGiven *given = member->local->given;
    char *own = (char *)all + (size_t)world->number * bytes;
    memmove(own, mine, bytes);
    given[world->number] = (LocalGiven){own, bytes};
    TRY(meet(member, error));
    LocalGiven other = given[world->number];
    for (int i = 0; i < world->config.size && other.bytes == bytes; i++)
        other = given[i];
    for (int i = 0; i < world->config.size && other.bytes == bytes; i++)
        if (i != world->number)
            memcpy((char *)all + (size_t)i * bytes, given[i].block, bytes);
    TRY(meet(member, error));
    return other.bytes == bytes
               ? STATUS_OK
               : error_set(error, STATUS_RUN_FAILED, "members gather different numbers of bytes: %zu and %zu", bytes,
                           other.bytes);
}

static void local_abort(World *world, const char *reason)
{
    Local *local = ((LocalMember *)world)->local;
    int running = RUNNING;
    if (!atomic_compare_exchange_strong(&local->state, &running, ABORTING))
        return; /* another member has already aborted the run */
    world_ending(world, reason, local->reason, sizeof local->reason);
    atomic_store(&local->state, ABORTED);
    for (int i = 0; i < world->config.size; i++)
        local_unpark(&local->members[i], atomic_load(&local->members[i].parked));
}

static void local_free(Local *local)
{
    pthread_mutex_destroy(&local->lock);
    pthread_mutex_destroy(&local->network);
    free(local->links);
    free(local->everybody);
    free(local->given);
    free(local->members);
    free(local);
}

/* Frees the memory of all members when the last one is closed: until then members may access each other. */
static void local_close(World *world)
{
    Local *local = ((LocalMember *)world)->local;
    if (atomic_fetch_sub(&local->open, 1) == 1)
        local_free(local);
}

static int processors(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
    /* sched_getaffinity fails if the machine has more processors than a cpu_set_t holds */
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static Status local_open(const WorldConfig *config, World **members, Error *error)
{
    const size_t size = (size_t)config->size;
    Local *local = calloc(1, sizeof *local);
    if (local) {
        pthread_mutex_init(&local->lock, NULL);
        pthread_mutex_init(&local->network, NULL);
        local->links = config->link.given ? calloc(size * size, sizeof *local->links) : NULL;
        local->spins = config->size <= processors() ? SPINS : 0;
        local->members = aligned_alloc(CACHE_LINE, size * sizeof *local->members);
        local->given = calloc(size, sizeof *local->given);
        local->everybody = local_barrier(config->size);
    }
    if (!local || !local->members || !local->given || !local->everybody || (config->link.given && !local->links)) {
        if (local)
            local_free(local);
        return error_set(error, STATUS_RUN_FAILED, "no memory for a world of %d ranks", config->size);
    }
    memset(local->members, 0, size * sizeof *local->members);
    atomic_store(&local->open, config->size);
    for (int i = 0; i < config->size; i++) {
        LocalMember *member = &local->members[i];
        world_init(&member->world, &world_local, config, i);
        if (!(member->world.config.deadline < 1e9))
            member->world.config.deadline = 0;
        member->local = local;
        members[i] = &member->world;
    }
    return STATUS_OK;
}

const WorldTable world_local = {
    .open = local_open,
    .gather = local_gather,
    .abort = local_abort,
    .close = local_close,
    .connect = local_connect,
};
