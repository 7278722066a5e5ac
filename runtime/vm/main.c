/* dprun runs what dpc has compiled: options → load → open → run → close. */
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/transport/launched.h"
#include "runtime/vm/report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool stop;
static _Atomic int64_t first_signal;
static const char *notice = ""; /* what the first signal makes the run say, */
static bool in_place;           /* on a line of its own */

/* The first signal ends the run after the step, a second one at once. mpirun's signals come twice within an instant, to the
   process group and by the guarding process: that is one. */
static void end_signal(int number)
{
    const int64_t now = clock_nanoseconds();
    int64_t first = 0;
    atomic_store(&stop, true);
    if (atomic_compare_exchange_strong(&first_signal, &first, now)) {
        const int before = errno;
        if ((in_place && write(STDERR_FILENO, "\n", 1) < 0) || write(STDERR_FILENO, notice, strlen(notice)) < 0)
            in_place = false; /* nobody reads it */
        errno = before;
        return;
    }
    if (now - first < 300000000 || number == SIGUSR1)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

/* mpirun takes SIGINT and SIGTERM as the end of all and kills what has not ended a second or two later; SIGUSR1 it hands on. */
static void handle_signals(bool processes)
{
    struct sigaction action = {.sa_handler = end_signal, .sa_flags = SA_RESTART};
    if (!processes)
        notice = "dprun: the run ends after this step; a second signal ends it at once\n";
    else if (launched_place_on_machine() == 0)
        notice = "dprun: the run ends after this step, unless mpirun kills it before: after SIGINT or SIGTERM it waits for a second "
                 "or two, after SIGUSR1 until the end\n";
    in_place = *notice && isatty(STDERR_FILENO);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static Status run(const LoadedProgram *loaded, const RunOptions *options, Progress *progress, Error *error)
{
    Report report;
    Session *session;
    SessionHooks hooks = {.progress = progress, .stop = &stop};
    report_open(&report, options, &stop, &hooks.observer);
    TRY(session_open(loaded, options, &hooks, &session, error));
    handle_signals(options->processes); /* before there is a step that could end they end the process */
    Status status = session_run(session, error);
    status = report_close(&report, status, error);
    if (!session_close(session)) {
        fprintf(stderr, "dprun: %s\n", error->text);
        fflush(NULL);
        _exit((int)status);
    }
    return status;
}

static Status dprun(int argc, char **argv, Arena *arena, Error *error)
{
    RunOptions options;
    LoadedProgram loaded;
    Progress *progress = NULL;
    Status status;
    TRY(options_parse(argc, argv, arena, &options, error));
    if (options.help || options.version) {
        OutputFile printed = {.stream = stdout};
        fputs(options.help ? options_help : "dprun " PROJECT_VERSION "\n", stdout);
        return file_finish(&printed, error);
    }
    TRY(program_load(options.program, options.reference, options.forward_only, options.transport == TRANSPORT_NCCL, arena, &loaded,
                     error));
    options.costs = costs_of_components(&options.costs, loaded.program->recipe, arena);
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is seen by what the write returns, */
    signal(SIGXFSZ, SIG_IGN); /* and a file that may not grow further (ulimit -f) */
    if (options.processes && supervise(&loaded, &options, &progress, &status))
        return status;
    status = run(&loaded, &options, progress, error);
    if (progress)
        kill(getppid(), SIGCONT); /* a guard that was stopped could not see the end */
    return status;
}

static Status with_memory(int argc, char **argv, Arena *arena, Error *error)
{
    jmp_buf exhausted;
    arena->exhausted = &exhausted;
    if (setjmp(exhausted) != 0)
        return error_set(error, STATUS_RUN_FAILED, "no memory");
    return dprun(argc, argv, arena, error);
}

int main(int argc, char **argv)
{
    Arena arena = {0};
    Error error = {0};
    const Status status = with_memory(argc, argv, &arena, &error);
    if (status != STATUS_OK && *error.text)
        fprintf(stderr, "dprun: %s\n", error.text);
    arena_free(&arena);
    return (int)status;
}
