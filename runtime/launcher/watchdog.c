#include "runtime/launcher/watchdog.h"

#include "runtime/base/clock.h"
#include "runtime/launcher/fatal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long ranks may take to return after the run has failed. */
#define GRACE_SECONDS 1.0

typedef struct Crew Crew;

typedef struct Worker {
    Crew *crew;
    const WatchedRank *watched;
    pthread_t thread;
    uint64_t seen; /* its progress at the last look */
    int64_t used;  /* its processor time at the last look, in ns */
    bool started;  /* the thread has to be joined */
    bool finished;
} Worker;

struct Crew {
    pthread_mutex_t lock; /* guards the members below and Worker.finished */
    pthread_cond_t changed;
    int running;
    Status status; /* status of the first failure */
    Error error;
    RankThreads threads;
    int count;
    Worker workers[];
};

/* Records the first failure before the other ranks hear of it: their own failures only repeat it, and come later. */
static void crew_fail(Crew *crew, const WatchedRank *watched, Status status, const Error *error)
{
    pthread_mutex_lock(&crew->lock);
    const bool first = crew->status == STATUS_OK;
    if (first) {
        crew->status = status;
        crew->error = *error;
    }
    pthread_cond_signal(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    if (first)
        crew->threads.abort(watched->rank, error->text);
}

static void *worker_main(void *argument)
{
    Worker *worker = argument;
    Crew *crew = worker->crew;
    Error error = {0};
    const RankThreads *threads = &crew->threads;
    Status status = fatal_run(worker->watched->progress, &threads->words, threads->work, worker->watched->rank, &error);
    if (status != STATUS_OK)
        crew_fail(crew, worker->watched, status, &error);
    pthread_mutex_lock(&crew->lock);
    worker->finished = true;
    crew->running--;
    pthread_cond_signal(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
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

/* True if a rank has moved since the last call, even within a pass; also if no rank runs its instructions, so that
   there is nothing to watch. */
static bool moved(Crew *crew)
{
    bool any = false, streams = false;
    for (int i = 0; i < crew->count; i++) {
        Worker *worker = &crew->workers[i];
        const uint64_t place = progress_of(worker);
        const int64_t used = processor_time(worker);
        any |= place != worker->seen || used != worker->used;
        streams |= place != PROGRESS_IDLE;
        worker->seen = place;
        worker->used = used;
    }
    return any || !streams;
}

/* Appends the positions of ranks that have not returned, at most four. */
static void append_places(const Crew *crew, Error *error)
{
    int listed = 0;
    for (int i = 0; i < crew->count && listed < 4; i++) {
        const Worker *worker = &crew->workers[i];
        const ProgressWords *words = &crew->threads.words;
        const Progress *progress = worker->watched->progress;
        char text[256], peer[64] = "";
        words->place(words->program, progress, text, sizeof text);
        if (worker->finished || !*text)
            continue;
        const int awaited = words->awaited(words->program, progress);
        if (awaited >= 0)
            snprintf(peer, sizeof peer, " for %s", mesh_name(words->mesh, awaited).text);
        const size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, "%s%s at %s%s", listed++ ? ", " : "",
                 mesh_name(words->mesh, atomic_load(&progress->member)).text, text, peer);
    }
}

static void wait_seconds(Crew *crew, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_cond_timedwait(&crew->changed, &crew->lock, &until);
}

/* Waits until all ranks have returned, one has failed, or none has moved for longer than the deadline. Under the
   lock. */
static void watch(Crew *crew)
{
    const double deadline = crew->threads.deadline;
    const double look = deadline / 4 < 1 ? deadline / 4 : 1;
    int64_t last_move = clock_nanoseconds();
    while (crew->running > 0 && crew->status == STATUS_OK) {
        if (deadline <= 0) {
            pthread_cond_wait(&crew->changed, &crew->lock);
            continue;
        }
        wait_seconds(crew, look);
        const int64_t now = clock_nanoseconds();
        if (moved(crew)) {
            last_move = now;
        } else if ((double)(now - last_move) > deadline * 1e9 && crew->status == STATUS_OK && crew->running > 0) {
            crew->status =
                error_set(&crew->error, STATUS_RUN_FAILED, "no rank has moved for %g s (--deadline): ", deadline);
            append_places(crew, &crew->error);
            crew->threads.abort(crew->workers[0].watched->rank, crew->error.text);
        }
    }
}

/* After a failure, waits for the ranks for GRACE_SECONDS. Appends the names of those that do not return. */
static bool all_came_back(Crew *crew)
{
    const int64_t until = clock_nanoseconds() + (int64_t)(GRACE_SECONDS * 1e9);
    for (int64_t now; crew->running > 0 && (now = clock_nanoseconds()) < until;)
        wait_seconds(crew, (double)(until - now) * 1e-9);
    if (crew->running == 0)
        return true;
    if (!strstr(crew->error.text, "no rank has moved")) {
        const size_t used = strlen(crew->error.text);
        snprintf(crew->error.text + used, sizeof crew->error.text - used, "; not back yet: ");
        append_places(crew, &crew->error);
    }
    return false;
}

static void start_threads(Crew *crew)
{
    bool good = true;
    for (int i = 0; i < crew->count && good; i++) {
        Worker *worker = &crew->workers[i];
        const int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        pthread_mutex_lock(&crew->lock);
        worker->started = !failed;
        crew->running += !failed;
        good = !failed && crew->status == STATUS_OK;
        pthread_mutex_unlock(&crew->lock);
        if (failed) {
            Error error;
            Status status =
                error_set(&error, STATUS_RUN_FAILED, "no thread for %s: %s",
                          mesh_name(crew->threads.words.mesh, atomic_load(&worker->watched->progress->member)).text,
                          strerror(failed));
            crew_fail(crew, worker->watched, status, &error);
        }
    }
}

static Crew *make_crew(const RankThreads *threads)
{
    Crew *crew = calloc(1, sizeof *crew + (size_t)threads->count * sizeof *crew->workers);
    pthread_condattr_t monotonic;
    if (!crew)
        return NULL;
    crew->threads = *threads;
    crew->count = threads->count;
    for (int i = 0; i < threads->count; i++)
        crew->workers[i] = (Worker){.crew = crew, .watched = &threads->ranks[i]};
    pthread_mutex_init(&crew->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&crew->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return crew;
}

/* Joins the threads that have returned, and detaches the others. */
static void end_threads(Crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].started && !crew->workers[i].finished) {
            pthread_detach(crew->workers[i].thread);
            crew->workers[i].started = false;
        }
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].started)
            pthread_join(crew->workers[i].thread, NULL);
}

Status watchdog_run(const RankThreads *threads, bool *stuck, Error *error)
{
    Crew *crew = make_crew(threads);
    if (!crew)
        return error_set(error, STATUS_RUN_FAILED, "no memory for %d threads", threads->count);
    start_threads(crew);
    pthread_mutex_lock(&crew->lock);
    watch(crew);
    *stuck = !all_came_back(crew);
    const Status status = crew->status;
    *error = crew->error;
    pthread_mutex_unlock(&crew->lock);
    end_threads(crew);
    if (*stuck)
        return status; /* the detached threads still use this memory */
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
    return status;
}
