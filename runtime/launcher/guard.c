#include "runtime/launcher/guard.h"

#include "runtime/launcher/launched.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void report_death(const ProgressWords *words, int expected_member, const Progress *progress, int status)
{
    const int member = atomic_load(&progress->member);
    const MemberName name = mesh_name(words->mesh, member < 0 ? expected_member : member);
    char how[64], place[256];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "ended by a library with status %d", WEXITSTATUS(status));
    if (member < 0) {
        fprintf(stderr, "dprun: %s was %s before it was ready\n", name.text, how);
        return;
    }
    words->place(words->program, progress, place, sizeof place);
    fprintf(stderr, "dprun: %s was %s %s%s\n", name.text, how, *place ? "at " : "outside a step", place);
}

/* Waits until the child has ended. Forwards signals that end a run to the child, which then ends by itself. The child
   may also get the same signal through the process group; the child then counts the two signals as one (signals.c). */
static Status guard(pid_t child, const ProgressWords *words, int expected_member, const Progress *progress,
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
            report_death(words, expected_member, progress, status);
        launched_await_reader();
        return STATUS_RUN_FAILED;
    }
}

bool guard_begin(const ProgressWords *words, int expected_member, Progress **progress, Status *status)
{
    Progress *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false; /* runs without a guard */
    progress_reset(shared, -1);
    /* a parent that ignores SIGCHLD passes this on: then the kernel would not report the end of the child */
    signal(SIGCHLD, SIG_DFL);
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
        /* renames the guard, so that a search for processes named dprun finds only ranks */
        prctl(PR_SET_NAME, "pp-guard");
        *status = guard(child, words, expected_member, shared, &watched);
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
