#include "runtime/transport/limit.h"

#include "base/clock.h"
#include "base/status.h"
#include "runtime/launcher/launched.h"

#include <stdio.h>
#include <unistd.h>

static void name_process(const void *context, int process, char *text, size_t size)
{
    const WorldConfig *world = context;
    snprintf(text, size, "%s", world_member_name(world, world->map ? world->map[process] : process).text);
}

static void *limit_main(void *argument)
{
    Limit *limit = argument;
    const struct timespec end = clock_timespec(clock_nanoseconds() + (int64_t)(limit->seconds * 1e9));
    int late = 0;
    pthread_mutex_lock(&limit->lock);
    while (!limit->over && late == 0)
        late = pthread_cond_timedwait(&limit->changed, &limit->lock, &end);
    if (!limit->over) {
        char missing[256];
        launched_missing(name_process, limit->who, missing, sizeof missing);
        fprintf(stderr, "dprun: %s within %g s (--deadline above %g allows more)%s\n", limit->words, limit->seconds,
                limit->seconds, missing);
        launched_await_reader();
        _exit(STATUS_RUN_FAILED); /* mpirun (or srun) sees the exit status and ends the other processes */
    }
    pthread_mutex_unlock(&limit->lock);
    return NULL;
}

void limit_begin(Limit *limit)
{
    limit->over = false;
    pthread_mutex_init(&limit->lock, NULL);
    clock_condition(&limit->changed);
    limit->watched = limit->seconds > 0 && pthread_create(&limit->thread, NULL, limit_main, limit) == 0;
}

void limit_end(Limit *limit)
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
