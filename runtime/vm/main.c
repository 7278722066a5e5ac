/* dprun runs what dpc has compiled: options → load → open → run → close. */
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/program/costs_resolve.h"
#include "runtime/transport/launched.h"
#include "runtime/vm/check.h"
#include "runtime/vm/report.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool stop, can_end_a_step;
static _Atomic int64_t first_signal;
static const char *notice = ""; /* what the first signal makes the run say, */
static bool in_place;           /* on a line of its own */

static void end_at_once(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
}

/* The first signal ends the run after the step, a second one at once. mpirun's signals come twice within an instant, to
   the process group and by the guarding process: that is one. */
static void take_signal(int number)
{
    const int64_t now = clock_nanoseconds();
    int64_t first = 0;
    if (!atomic_load(&can_end_a_step))
        end_at_once(number);
    atomic_store(&stop, true);
    if (atomic_compare_exchange_strong(&first_signal, &first, now)) {
        if ((in_place && write(STDERR_FILENO, "\n", 1) < 0) || write(STDERR_FILENO, notice, strlen(notice)) < 0)
            in_place = false; /* nobody reads it */
    } else if (now - first >= 300000000 && number != SIGUSR1) {
        end_at_once(number);
    }
}

static sigset_t ends; /* the signals that end a run */

static void *take_signals(void *unused)
{
    for (int number; sigwait(&ends, &number) == 0;)
        take_signal(number);
    return unused;
}

/* A thread of their own takes the signals, all others block them: oneDNN's kernels use the stack pointer for other
   things, and a handler that runs on top of one writes over the heap. Before other threads are there. mpirun takes
   SIGINT and SIGTERM as the end of all and kills what has not ended a second or two later; SIGUSR1 it hands on. */
static void handle_signals(bool processes)
{
    pthread_t thread;
    if (!processes)
        notice = "dprun: the run ends after this step; a second signal ends it at once\n";
    else if (launched_place_on_machine() == 0)
        notice = "dprun: the run ends after this step, unless mpirun kills it before: after SIGINT or SIGTERM it waits "
                 "for a second "
                 "or two, after SIGUSR1 until the end\n";
    in_place = *notice && isatty(STDERR_FILENO);
    atomic_store(&can_end_a_step, processes); /* mpirun does not take it well when they die while MPI starts */
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

/* `report` NULL: there is none to be closed. */
static Status run(const LoadedProgram *loaded, const RunOptions *options, const SessionHooks *hooks, Report *report,
                  Error *error)
{
    Session *session;
    TRY(session_open(loaded, options, hooks, &session, error));
    atomic_store(&can_end_a_step, true);
    Status status = session_run(session, error);
    if (report)
        status = report_close(report, status, error);
    if (!session_close(session)) {
        error_print("dprun", error);
        fflush(NULL);
        _exit((int)status);
    }
    return status;
}

static Status run_and_report(const LoadedProgram *loaded, const RunOptions *options, Progress *progress, Error *error)
{
    Report report;
    SessionHooks hooks = {.progress = progress, .stop = &stop};
    report_open(&report, options, &stop, &hooks.observer);
    return run(loaded, options, &hooks, &report, error);
}

/* The program, then its reference for as many steps. */
static Status run_and_check(const LoadedProgram *loaded, RunOptions *options, Arena *arena, Error *error)
{
    Report report;
    Check check;
    LoadedProgram reference;
    OutputFile printed = {.stream = stdout};
    SessionHooks hooks = {.stop = &stop};
    const bool in_order = options->transport == TRANSPORT_NCCL;
    TRY(program_load(options->program, true, options->forward_only, in_order, arena, &reference, error));
    if (!options->json)
        report_open(&report, options, &stop, &hooks.observer);
    check_open(&check, loaded->program, options, &stop, arena);
    hooks.observer = check_record(&check, hooks.observer);
    TRY(run(loaded, options, &hooks, options->json ? NULL : &report, error));
    options->steps = check.steps;
    hooks.observer = check_compare(&check);
    TRY(run(&reference, options, &hooks, NULL, error));
    TRY(check_tell(&check, options->json, stdout, error));
    return file_finish(&printed, error);
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
    TRY(program_load(options.program, options.reference, options.forward_only, options.transport == TRANSPORT_NCCL,
                     arena, &loaded, error));
    options.costs = costs_resolve(&options.costs, loaded.program->stages, loaded.program->recipe, arena);
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is seen by what the write returns, */
    signal(SIGXFSZ, SIG_IGN); /* and a file that may not grow further (ulimit -f) */
    if (options.processes && supervise(&loaded, &options, &progress, &status))
        return status;
    fatal_begin();
    handle_signals(options.processes);
    status = options.check ? run_and_check(&loaded, &options, arena, error)
                           : run_and_report(&loaded, &options, progress, error);
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
    if (status != STATUS_OK)
        error_print("dprun", &error);
    arena_free(&arena);
    fatal_over();
    return (int)status;
}
