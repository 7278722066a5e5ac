/* dprun runs what dpc has compiled: options → load → open → run → close. */
#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/program/costs_resolve.h"
#include "runtime/command/check.h"
#include "runtime/command/report.h"
#include "runtime/launcher/fatal.h"
#include "runtime/launcher/guard.h"
#include "runtime/launcher/launched.h"
#include "runtime/launcher/signals.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool stop; /* the run is to end after its step */

/* `report` NULL: there is none to be closed. */
static Status run(const LoadedProgram *loaded, const RunOptions *options, const SessionHooks *hooks, Report *report,
                  Error *error)
{
    Session *session;
    TRY(session_open(loaded, options, hooks, &session, error));
    signals_end_steps();
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

/* Which rank this process will be, before the transport has found out. */
static int expected_rank(const RunOptions *options)
{
    const int number = launched_number();
    if (number < 0)
        return 0;
    return options->rank_map && number < options->rank_map_count ? options->rank_map[number] : number;
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
    const ProgressWords words = progress_words(&loaded);
    if (options.processes && guard_begin(&words, expected_rank(&options), &progress, &status))
        return status;
    fatal_begin();
    signals_begin(&stop, options.processes);
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
