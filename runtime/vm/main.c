/* dprun runs what dpc has compiled: options → load → open → run → close. */
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/vm/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool stop;
static _Atomic int64_t first_signal;

/* The first signal ends the run after the step, a second one at once. mpirun's signals come twice within an instant, to the
   process group and by the guarding process: that is one. */
static void end_signal(int number)
{
    const int64_t now = clock_nanoseconds();
    int64_t first = 0;
    atomic_store(&stop, true);
    if (atomic_compare_exchange_strong(&first_signal, &first, now) || now - first < 300000000)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

static void handle_signals(void)
{
    struct sigaction action = {.sa_handler = end_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is seen by what the write returns */
}

static Status run(const LoadedProgram *loaded, const RunOptions *options, Progress *progress, Error *error)
{
    Report report;
    Session *session;
    SessionHooks hooks = {.progress = progress, .stop = &stop};
    report_open(&report, options, &stop, &hooks.observer);
    TRY(session_open(loaded, options, &hooks, &session, error));
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
    if (options.processes && supervise(&loaded, &progress, &status))
        return status;
    handle_signals();
    return run(&loaded, &options, progress, error);
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
