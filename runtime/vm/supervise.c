/* Under mpirun a rank that is killed cannot say where it was, and MPI does not tell the others. So the process that
   mpirun started only guards: a child does all the work and keeps its place in a page that both share. */
#include "runtime/vm/machine.h"

#include "runtime/transport/launched.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Which rank this process will be, as long as it has not said so. */
static int expected_rank(const RunOptions *options)
{
    const int number = launched_number();
    if (number < 0)
        return 0;
    return options->rank_map && number < options->rank_map_count ? options->rank_map[number] : number;
}

static void report_death(const LoadedProgram *loaded, const RunOptions *options, const Progress *progress, int status)
{
    const int rank = atomic_load(&progress->rank);
    const uint64_t place = atomic_load(&progress->place);
    char how[64];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "ended by a library with status %d", WEXITSTATUS(status));
    if (rank < 0) {
        fprintf(stderr, "dprun: rank %d was %s before it was ready\n", expected_rank(options), how);
        return;
    }
    char text[256] = "between two steps";
    if (place != PROGRESS_IDLE)
        instruction_place(atomic_load(&progress->evaluating) ? loaded->forward : loaded->program, (uint32_t)rank,
                          (uint32_t)place, text, sizeof text);
    fprintf(stderr, "dprun: rank %d was %s %s%s\n", rank, how, place == PROGRESS_IDLE ? "" : "at ", text);
}

/* Until the child has ended. A signal to end goes to the child as well, which ends in its own way; the child knows the
   same signal sent to the whole group from a second one. */
static Status guard(pid_t child, const LoadedProgram *loaded, const RunOptions *options, const Progress *progress,
                    const sigset_t *watched)
{
    bool asked_to_end = false;
    for (;;) {
        int ended, status;
        const int number = sigwaitinfo(watched, NULL);
        if (number > 0 && number != SIGCHLD) {
            asked_to_end = true;
            kill(child, number);
            continue;
        }
        do
            ended = waitpid(child, &status, WNOHANG);
        while (ended < 0 && errno == EINTR);
        if (ended != child)
            continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) <= STATUS_RUN_FAILED)
            return (Status)WEXITSTATUS(status);
        if (!asked_to_end || !WIFSIGNALED(status) ||
            (WTERMSIG(status) != SIGKILL && !sigismember(watched, WTERMSIG(status))))
            report_death(loaded, options, progress, status);
        launched_await_reader();
        return STATUS_RUN_FAILED;
    }
}

bool supervise(const LoadedProgram *loaded, const RunOptions *options, Progress **progress, Status *status)
{
    Progress *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false; /* unguarded, but running */
    atomic_store(&shared->place, PROGRESS_IDLE);
    atomic_store(&shared->rank, -1);
    signal(SIGCHLD, SIG_DFL); /* where a parent has had it ignored no end of a child is ever told */
    sigset_t watched, before;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGHUP);
    sigaddset(&watched, SIGUSR1);
    sigprocmask(SIG_BLOCK, &watched, &before);
    const pid_t parent = getpid();
    fflush(NULL);
    const pid_t child = fork();
    if (child > 0) {
        prctl(PR_SET_NAME, "pp-guard"); /* who looks for dprun finds the ranks */
        *status = guard(child, loaded, options, shared, &watched);
        return true;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            raise(SIGKILL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    *progress = shared;
    return false;
}
