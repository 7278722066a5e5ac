/*
 * For LD_PRELOAD. From begin_late() to end_late(), a thread of gloo that has computed a sum waits. So it still holds
 * the tensors of the sum long after wait() has returned in the thread of Python.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_bool is_late;
// calls of pthread_cond_broadcast() by this thread since its last pthread_cond_wait(); 2 more if it never waited
static _Thread_local int broadcasts = 2;

void begin_late(void);
void end_late(void);

void begin_late(void) { is_late = 1; }

// Takes a second. ctypes.PyDLL calls this without releasing the interpreter's lock.
void end_late(void)
{
    is_late = 0;
    sleep(1);
}

// A thread that computes sums calls this when there is none.
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    int (*next)(pthread_cond_t *, pthread_mutex_t *);
    *(void **)&next = dlsym(RTLD_NEXT, __func__);
    broadcasts = 0;
    return next(condition, mutex);
}

// A thread that computes sums calls this when the future of a sum is complete, and again when the sum is.
int pthread_cond_broadcast(pthread_cond_t *condition)
{
    int (*next)(pthread_cond_t *);
    *(void **)&next = dlsym(RTLD_NEXT, __func__);
    int status = next(condition);
    if (gettid() != getpid() && ++broadcasts == 2)
        for (int waited = 0; is_late && waited < 20000; waited++)
            usleep(1000);
    return status;
}
