#include "runtime/launcher/signals.h"

#include "base/clock.h"
#include "runtime/launcher/launched.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ns: two signals within this time count as one, because mpirun signals the whole process group and the guard forwards
   its signal, too */
enum { SAME_SIGNAL = 300000000 };

static atomic_bool *stop_asked, can_end_a_step;
static _Atomic int64_t first_signal;
static const char *notice = ""; /* printed at the first signal; "": nothing is printed */
static bool in_place;           /* the cursor is in a line that is drawn in place, so `notice` starts on a new line */
static sigset_t ends;           /* the signals that end a run */

static void end_at_once(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
}

static void take_signal(int number)
{
    const int64_t now = clock_nanoseconds();
    int64_t first = 0;
    if (!atomic_load(&can_end_a_step))
        end_at_once(number);
    atomic_store(stop_asked, true);
    if (atomic_compare_exchange_strong(&first_signal, &first, now)) {
        if ((in_place && write(STDERR_FILENO, "\n", 1) < 0) || write(STDERR_FILENO, notice, strlen(notice)) < 0)
            in_place = false; /* has no effect: a failed write is ignored, since nobody would see the notice */
    } else if (now - first >= SAME_SIGNAL && number != SIGUSR1) {
        end_at_once(number);
    }
}

static void *take_signals(void *unused)
{
    for (int number; sigwait(&ends, &number) == 0;)
        take_signal(number);
    return unused;
}

/* A separate thread receives the signals; all other threads block them: oneDNN's kernels use the stack pointer for
   other purposes, so a handler that interrupts one would overwrite the heap. On SIGINT and SIGTERM mpirun ends all
   processes, and kills those that have not ended a second or two later. It passes SIGUSR1 on. */
void signals_begin(atomic_bool *stop, bool processes)
{
    pthread_t thread;
    stop_asked = stop;
    if (!processes)
        notice = "dprun: the run ends after this step; a second signal ends it at once\n";
    else if (launched_place_on_machine() == 0)
        notice =
            "dprun: the run ends after this step, unless mpirun kills it before: mpirun waits a second or two after "
            "SIGINT or SIGTERM, and until the end after SIGUSR1\n";
    in_place = *notice && isatty(STDERR_FILENO);
    /* before steps run, a signal ends the process at once, but not under mpirun: mpirun may fail if its processes die
       while MPI starts */
    atomic_store(&can_end_a_step, processes);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    if (pthread_create(&thread, NULL, take_signals, NULL) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &ends, NULL);
}

void signals_end_steps(void) { atomic_store(&can_end_a_step, true); }
