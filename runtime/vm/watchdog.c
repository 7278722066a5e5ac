/* The ranks of this process as threads, watched: the first failure ends all of them, and so does a standstill. */
#include "runtime/vm/machine.h"

#include "runtime/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* How long ranks have to come back from what they are doing once the run has failed. */
#define GRACE_SECONDS 1.0

typedef struct Crew Crew;

typedef struct Worker {
    Crew *crew;
    Rank *rank;
    pthread_t thread;
    uint64_t seen; /* its progress at the last look, */
    int64_t used;  /* and its processor time, ns */
    bool started;  /* and still to be joined */
    bool finished;
} Worker;

struct Crew {
    pthread_mutex_t lock; /* guards what follows and Worker.finished */
    pthread_cond_t changed;
    int running;
    Status status; /* of the first failure */
    Error error;
    Status (*work)(Rank *rank, Error *error);
    int count;
    Worker workers[];
};

/* The first failure is noted before the others hear of it, so that theirs, which only repeat it, come later. */
static void crew_fail(Crew *crew, Rank *rank, Status status, const Error *error)
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
        rank->transport->abort(rank->endpoint, error->text);
}

static void *worker_main(void *argument)
{
    Worker *worker = argument;
    Crew *crew = worker->crew;
    Error error = {0};
    Status status = fatal_run(worker->rank, crew->work, &error);
    if (status != STATUS_OK)
        crew_fail(crew, worker->rank, status, &error);
    pthread_mutex_lock(&crew->lock);
    worker->finished = true;
    crew->running--;
    pthread_cond_signal(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static uint64_t progress_of(const Worker *worker)
{
    return atomic_load_explicit(&worker->rank->progress->place, memory_order_relaxed);
}

/* Who waits for others sleeps, who computes does not. */
static int64_t processor_time(const Worker *worker)
{
    clockid_t clock;
    struct timespec used = {0};
    if (worker->finished || pthread_getcpuclockid(worker->thread, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return worker->used;
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

/* True when a rank has moved since the last call, be it within a pass, or when none is in a stream: then there is
   nothing to watch. */
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

/* Adds where the ranks are that have not come back, the first few of them. */
static void append_places(const Crew *crew, Error *error)
{
    int listed = 0;
    for (int i = 0; i < crew->count && listed < 4; i++) {
        const Worker *worker = &crew->workers[i];
        const uint64_t place = progress_of(worker);
        if (worker->finished || place == PROGRESS_IDLE)
            continue;
        const LoadedProgram *loaded = worker->rank->session->loaded;
        const bool evaluating = atomic_load_explicit(&worker->rank->progress->evaluating, memory_order_relaxed);
        const Program *program = evaluating ? loaded->forward : loaded->program;
        const Instruction *instructions = program->ranks[worker->rank->number].instructions;
        const int peer_rank = awaited_rank(instructions, (uint32_t)place);
        char text[256], peer[32] = "";
        instruction_place(program, (uint32_t)worker->rank->number, (uint32_t)place, text, sizeof text);
        if (peer_rank >= 0)
            snprintf(peer, sizeof peer, " for rank %d", peer_rank);
        const size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, "%srank %d at %s%s", listed++ ? ", " : "",
                 worker->rank->number, text, peer);
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

/* Until all have come back or one has failed or none has moved for longer than the deadline. Under the lock. */
static void watch(Crew *crew, double deadline)
{
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
            Rank *rank = crew->workers[0].rank;
            rank->transport->abort(rank->endpoint, crew->error.text);
        }
    }
}

/* After a failure: who does not come back within the grace is left behind, and named. */
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
            Status status = error_set(&error, STATUS_RUN_FAILED, "no thread for rank %d: %s", worker->rank->number,
                                      strerror(failed));
            crew_fail(crew, worker->rank, status, &error);
        }
    }
}

Status crew_run(Session *session, Status (*work)(Rank *rank, Error *error), Error *error)
{
    const int ranks = (int)session->loaded->program->rank_count;
    Crew *crew = calloc(1, sizeof *crew + (size_t)ranks * sizeof *crew->workers);
    if (!crew)
        return error_set(error, STATUS_RUN_FAILED, "no memory for %d threads", ranks);
    crew->work = work;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&crew->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int r = 0; r < ranks; r++)
        if (session->endpoints[r])
            crew->workers[crew->count++] = (Worker){.crew = crew, .rank = &session->ranks[r]};

    start_threads(crew);
    pthread_mutex_lock(&crew->lock);
    watch(crew, session->options->deadline);
    session->stuck = !all_came_back(crew);
    const Status status = crew->status;
    *error = crew->error;
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].started && !crew->workers[i].finished) {
            pthread_detach(crew->workers[i].thread);
            crew->workers[i].started = false;
        }
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].started)
            pthread_join(crew->workers[i].thread, NULL);
    if (session->stuck)
        return status; /* the ranks that are left behind still use all this */
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
    return status;
}
