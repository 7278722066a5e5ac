#include "runtime/launcher/watchdog.h"

#include "base/clock.h"
#include "runtime/launcher/fatal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How many seconds ranks may take to return after the run has failed. */
#define GRACE_SECONDS 1.0

typedef struct Workers Workers;

typedef struct Worker {
    Workers *workers;
    const WatchedRank *watched;
    pthread_t thread;
    uint64_t seen; /* the rank's position when moved() looked last */
    int64_t used;  /* the processor time of the rank's thread when moved() looked last, in ns */
    bool started;  /* the thread that runs the rank was started, so it has to be joined or detached */
    bool finished;
} Worker;

struct Workers {
    pthread_mutex_t lock; /* guards the members below and Worker.finished */
    pthread_cond_t changed;
    int running;
    Status status; /* status of the first failure; STATUS_OK: none yet */
    Error error;
    RankThreads threads;
    int count;
    Worker worker[];
};

/* Records a failure if it is the first one, and then aborts the run. Later failures of other ranks are only
   consequences of the first one, and are ignored. */
static void workers_fail(Workers *workers, const WatchedRank *watched, Status status, const Error *error)
{
    pthread_mutex_lock(&workers->lock);
    const bool first = workers->status == STATUS_OK;
    if (first) {
        workers->status = status;
        workers->error = *error;
    }
    pthread_cond_signal(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
    if (first)
        workers->threads.abort(watched->rank, error->text);
}

static void *worker_main(void *argument)
{
    Worker *worker = argument;
    Workers *workers = worker->workers;
    Error error = {0};
    const RankThreads *threads = &workers->threads;
    Status status = fatal_run(worker->watched->progress, &threads->words, threads->work, worker->watched->rank, &error);
    if (status != STATUS_OK)
        workers_fail(workers, worker->watched, status, &error);
    pthread_mutex_lock(&workers->lock);
    worker->finished = true;
    workers->running--;
    pthread_cond_signal(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static uint64_t progress_of(const Worker *worker)
{
    return atomic_load_explicit(&worker->watched->progress->place, memory_order_relaxed);
}

/* The processor time of a rank. It grows while the rank computes, and not while it sleeps to wait for others. */
static int64_t processor_time(const Worker *worker)
{
    clockid_t clock;
    struct timespec used = {0};
    if (worker->finished || pthread_getcpuclockid(worker->thread, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return worker->used;
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

/* Whether any rank has made progress since the last call: it is at another instruction, or has used processor time.
   Also true if no rank runs instructions at the moment. */
static bool moved(Workers *workers)
{
    bool any = false, streams = false;
    for (int i = 0; i < workers->count; i++) {
        Worker *worker = &workers->worker[i];
        const uint64_t place = progress_of(worker);
        const int64_t used = processor_time(worker);
        any |= place != worker->seen || used != worker->used;
        streams |= place != PROGRESS_IDLE;
        worker->seen = place;
        worker->used = used;
    }
    return any || !streams;
}

/* Appends the positions of at most four ranks that have not returned and are at an instruction, the first after
   `separator`. */
static void append_places(const Workers *workers, const char *separator, Error *error)
{
    int listed = 0;
    for (int i = 0; i < workers->count && listed < 4; i++) {
        const Worker *worker = &workers->worker[i];
        const ProgressWords *words = &workers->threads.words;
        const Progress *progress = worker->watched->progress;
        char text[256], peer[64] = "";
        words->place(words->program, progress, text, sizeof text);
        if (worker->finished || !*text)
            continue;
        const int awaited = words->awaited(words->program, progress);
        if (awaited >= 0)
            snprintf(peer, sizeof peer, " waiting for %s", mesh_name(words->mesh, awaited).text);
        const size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, "%s%s at %s%s", listed++ ? ", " : separator,
                 mesh_name(words->mesh, atomic_load(&progress->member)).text, text, peer);
    }
}

/* Waits until something has changed, but at most `seconds`. Returns how long the wait took, but at most `seconds`: the
   rest, in which the process was stopped or this thread got no processor, does not count as a lack of progress. */
static double wait_seconds(Workers *workers, double seconds)
{
    const int64_t begun = clock_nanoseconds();
    const struct timespec until = clock_timespec(begun + (int64_t)(seconds * 1e9));
    pthread_cond_timedwait(&workers->changed, &workers->lock, &until);
    const double waited = (double)(clock_nanoseconds() - begun) * 1e-9;
    return waited < seconds ? waited : seconds;
}

/* Waits until all ranks have returned, one has failed, or none has made progress for longer than the deadline; in the
   last case records the failure and aborts the run. The caller holds the lock. */
static void watch(Workers *workers)
{
    const double deadline = workers->threads.deadline;
    const double look = deadline / 4 < 1 ? deadline / 4 : 1;
    double quiet = 0; /* for how many seconds no rank has made progress */
    while (workers->running > 0 && workers->status == STATUS_OK) {
        if (deadline <= 0) {
            pthread_cond_wait(&workers->changed, &workers->lock);
            continue;
        }
        quiet += wait_seconds(workers, look);
        if (moved(workers)) {
            quiet = 0;
        } else if (quiet >= deadline && workers->status == STATUS_OK && workers->running > 0) {
            workers->status = error_set(&workers->error, STATUS_RUN_FAILED,
                                        "no rank has made progress for %g s (--deadline)", deadline);
            append_places(workers, ": ", &workers->error);
            workers->threads.abort(workers->worker[0].watched->rank, workers->error.text);
        }
    }
}

/* After a failure, waits up to GRACE_SECONDS for all ranks to return. Returns whether all have. If not, appends the
   ranks that have not returned to the error, unless the error already lists ranks without progress. */
static bool all_came_back(Workers *workers)
{
    for (double waited = 0; workers->running > 0 && waited < GRACE_SECONDS;)
        waited += wait_seconds(workers, GRACE_SECONDS / 10);
    if (workers->running == 0)
        return true;
    if (!strstr(workers->error.text, "no rank has made progress"))
        append_places(workers, "; not returned yet: ", &workers->error);
    return false;
}

static void start_threads(Workers *workers)
{
    bool good = true;
    for (int i = 0; i < workers->count && good; i++) {
        Worker *worker = &workers->worker[i];
        const int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        pthread_mutex_lock(&workers->lock);
        worker->started = !failed;
        workers->running += !failed;
        good = !failed && workers->status == STATUS_OK;
        pthread_mutex_unlock(&workers->lock);
        if (failed) {
            Error error;
            Status status = error_set(
                &error, STATUS_RUN_FAILED,
                "cannot start the thread of %s: the limit on threads (`ulimit -u`, or that of the container) or "
                "on memory (`ulimit -v`) is reached",
                mesh_name(workers->threads.words.mesh, atomic_load(&worker->watched->progress->member)).text);
            workers_fail(workers, worker->watched, status, &error);
        }
    }
}

static Workers *make_workers(const RankThreads *threads)
{
    Workers *workers = calloc(1, sizeof *workers + (size_t)threads->count * sizeof *workers->worker);
    if (!workers)
        return NULL;
    workers->threads = *threads;
    workers->count = threads->count;
    for (int i = 0; i < threads->count; i++)
        workers->worker[i] = (Worker){.workers = workers, .watched = &threads->ranks[i]};
    pthread_mutex_init(&workers->lock, NULL);
    clock_condition(&workers->changed);
    return workers;
}

/* Joins the threads that have returned, and detaches the others. */
static void end_threads(Workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    for (int i = 0; i < workers->count; i++)
        if (workers->worker[i].started && !workers->worker[i].finished) {
            pthread_detach(workers->worker[i].thread);
            workers->worker[i].started = false;
        }
    pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < workers->count; i++)
        if (workers->worker[i].started)
            pthread_join(workers->worker[i].thread, NULL);
}

Status watchdog_run(const RankThreads *threads, bool *stuck, Error *error)
{
    Workers *workers = make_workers(threads);
    if (!workers)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the table of %d rank threads", threads->count);
    start_threads(workers);
    pthread_mutex_lock(&workers->lock);
    watch(workers);
    *stuck = !all_came_back(workers);
    const Status status = workers->status;
    *error = workers->error;
    pthread_mutex_unlock(&workers->lock);
    end_threads(workers);
    if (*stuck)
        return status; /* `workers` is not freed, because the detached threads still use it */
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
    return status;
}
