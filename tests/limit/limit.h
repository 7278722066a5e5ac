#pragma once

/* Runs a command that must end in time. */

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* TEST_LIMIT of the environment: for how many seconds a test may run; half an hour unless it is given. */
static inline time_t test_limit(void)
{
    const char *given = getenv("TEST_LIMIT");
    return given && *given ? atol(given) : 1800;
}

static inline void kill_children(void)
{
    glob_t tasks;
    if (glob("/proc/self/task/*/children", 0, NULL, &tasks) != 0)
        return;
    for (size_t i = 0; i < tasks.gl_pathc; i++) {
        FILE *children = fopen(tasks.gl_pathv[i], "r");
        for (int child; children && fscanf(children, "%d", &child) == 1;)
            kill(child, SIGKILL);
        if (children)
            fclose(children);
    }
    globfree(&tasks);
}

/* Waits until the process has ended, for a number of seconds at most, or until a signal comes that ends this process.
   Returns 0 if the process has ended, SIGALRM after that time, or that signal. Also reaps what the process has left. */
static inline int await_end(pid_t process, time_t seconds, const sigset_t *signals, int *status)
{
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    for (;;) {
        int ended;
        for (pid_t one; (one = waitpid(-1, &ended, WNOHANG)) > 0;)
            if (one == process) {
                *status = ended;
                return 0;
            }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= end.tv_sec)
            return SIGALRM;
        const int came = sigtimedwait(signals, NULL, &(struct timespec){.tv_sec = end.tv_sec - now.tv_sec});
        if (came > 0 && came != SIGCHLD)
            return came;
    }
}

/* Runs a program in a process group of its own, without input. Returns its wait status. *late: it did not end in time.
   Then, and if a signal ends this process, all that it has started ends: its group, and also what has left the group,
   as the ranks of mpirun do, because orphans become children of this process. */
static inline int run_limited(char *const *command, time_t seconds, bool *late)
{
    sigset_t signals, before;
    sigemptyset(&signals);
    for (size_t i = 0; i < 4; i++)
        sigaddset(&signals, (const int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP}[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        sigprocmask(SIG_SETMASK, &before, NULL);
        dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
        execvp(*command, command);
        perror(*command);
        _exit(127);
    }
    setpgid(child, child);
    int status = 0;
    const int why = await_end(child, seconds, &signals, &status);
    if (why != 0) {
        kill(-child, SIGTERM);
        await_end(child, 10, &signals, &status);
        kill(-child, SIGKILL);
        do
            kill_children();
        while (wait(NULL) > 0);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (why != 0 && why != SIGALRM)
        raise(why);
    *late = why != 0;
    return status;
}

static inline int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
