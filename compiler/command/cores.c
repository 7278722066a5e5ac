#include "compiler/command/cores.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>

void on_all_cores(void *(*work)(void *context), void *context, uint64_t most)
{
    enum { THREADS_MAX = 256 };
    pthread_t threads[THREADS_MAX];
    cpu_set_t cores;
    uint64_t wanted = sched_getaffinity(0, sizeof cores, &cores) == 0 ? (uint64_t)CPU_COUNT(&cores) : 1;
    int started = 0;
    /* One compilation reuses the memory that another one frees: returning it to the system costs as much as the
       proofs. */
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    if (wanted > most)
        wanted = most;
    while ((uint64_t)started + 1 < wanted && started < THREADS_MAX &&
           pthread_create(&threads[started], NULL, work, context) == 0)
        started++;
    work(context);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
