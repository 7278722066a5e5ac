#include "study/trials/cores.h"

#include <locale.h>
#include <pthread.h>
#include <sched.h>

typedef struct Task {
    void *(*work)(void *context);
    void *context;
    locale_t locale; /* the locale of the calling thread, which says how numbers are written */
} Task;

static void *run_task(void *argument)
{
    const Task *task = argument;
    uselocale(task->locale);
    return task->work(task->context);
}

void on_all_cores(void *(*work)(void *context), void *context, uint64_t most)
{
    enum { THREADS_MAX = 256 };
    pthread_t threads[THREADS_MAX];
    cpu_set_t cores;
    uint64_t wanted = sched_getaffinity(0, sizeof cores, &cores) == 0 ? (uint64_t)CPU_COUNT(&cores) : 1;
    int started = 0;
    Task task = {work, context, uselocale((locale_t)0)};
    if (wanted > most)
        wanted = most;
    while ((uint64_t)started + 1 < wanted && started < THREADS_MAX &&
           pthread_create(&threads[started], NULL, run_task, &task) == 0)
        started++;
    work(context);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
