/* dprun runs what dpc has compiled: options → load → open → run → close. */
#include "base/file.h"
#include "base/version.h"
#include "runtime/command/check.h"
#include "runtime/command/options.h"
#include "runtime/command/report.h"
#include "runtime/launcher/fatal.h"
#include "runtime/launcher/guard.h"
#include "runtime/launcher/launched.h"
#include "runtime/launcher/signals.h"
#include "program/times/costs_resolve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool stop; /* set to true: the run ends after the current step */

/* Opens, runs and closes a session. Closes `report` after the run, unless it is NULL. Ends the process if the session
   cannot be closed. */
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

static Status run_and_report(const LoadedProgram *loaded, const CommandLine *line, Progress *progress, Error *error)
{
    Report report;
    SessionHooks hooks = {.progress = progress, .stop = &stop};
    report_open(&report, line, &stop, &hooks.observer);
    return run(loaded, &line->run, &hooks, &report, error);
}

static Status load(const CommandLine *line, bool reference, Arena *arena, LoadedProgram *loaded, Error *error)
{
    const LoadOptions options = options_loading(line, reference);
    return program_load(line->program, &options, arena, loaded, error);
}

/* Runs the program, then the whole model on one rank for as many steps, and compares the numbers of both runs. */
static Status run_and_check(const LoadedProgram *loaded, CommandLine *line, Arena *arena, Error *error)
{
    Report report;
    Check check;
    LoadedProgram reference;
    OutputFile printed = {.stream = stdout};
    SessionHooks hooks = {.stop = &stop};
    TRY(load(line, true, arena, &reference, error));
    if (!line->json)
        report_open(&report, line, &stop, &hooks.observer);
    check_open(&check, loaded, line->run.steps, &stop, arena);
    hooks.observer = check_record(&check, hooks.observer);
    TRY(run(loaded, &line->run, &hooks, line->json ? NULL : &report, error));
    line->run.steps = check.steps;
    hooks.observer = check_compare(&check);
    TRY(run(&reference, &line->run, &hooks, NULL, error));
    TRY(check_tell(&check, line->json, stdout, error));
    return file_finish(&printed, error);
}

static Status print_help(const CommandLine *line, Error *error)
{
    OutputFile printed = {.stream = stdout};
    if (line->help)
        options_help(stdout);
    else
        puts("dprun " PROJECT_VERSION);
    return file_finish(&printed, error);
}

/* The number of the member of the mesh that this process will be, as the launcher's environment says; 0 if it was not
   launched. The world, which has the true number, is opened later. */
static int expected_member(const RunOptions *options)
{
    const int number = launched_number();
    if (number < 0)
        return 0;
    return options->rank_map && number < options->rank_map_count ? options->rank_map[number] : number;
}

/* Parses the options again, with --forward-only before them, for a program without backward passes. */
static Status run_forward_only(int argc, char **argv, Arena *arena, CommandLine *line, Error *error)
{
    char **const with = arena_array(arena, (size_t)argc + 2, sizeof *with);
    const char *const program = line->program;
    with[0] = argv[0];
    with[1] = "--forward-only";
    memcpy(with + 2, argv + 1, (size_t)(argc - 1) * sizeof *with);
    const Status status = options_parse(argc + 1, with, arena, line, error);
    if (status != STATUS_OK)
        error_prefix(error, "%s has no backward passes and runs as with --forward-only: ", program);
    return status;
}

static Status dprun(int argc, char **argv, Arena *arena, Error *error)
{
    CommandLine line;
    LoadedProgram loaded;
    Progress *progress = NULL;
    Status status;
    TRY(options_parse(argc, argv, arena, &line, error));
    if (line.help || line.version)
        return print_help(&line, error);
    TRY(load(&line, line.reference, arena, &loaded, error));
    if (loaded.program->forward_only && !line.forward_only)
        TRY(run_forward_only(argc, argv, arena, &line, error));
    if (line.run.outputs && !loaded.program->forward_only)
        return error_set(error, STATUS_BAD_USAGE,
                         "--outputs needs --forward-only or a program without backward passes");
    if ((line.run.expert_replicas || line.run.rebalance) && !loaded.program->forward_only)
        return error_set(error, STATUS_BAD_USAGE,
                         "--%s needs --forward-only or a program without backward passes: experts that have copies or "
                         "move cannot be trained",
                         line.run.expert_replicas ? "expert-replicas" : "rebalance");
    line.run.costs = costs_resolve(&line.run.costs, loaded.program->stages, &loaded.program->recipes, arena);
    signal(SIGPIPE, SIG_IGN); /* if the reader has closed the pipe, a write returns an error instead */
    signal(SIGXFSZ, SIG_IGN); /* if a file would exceed the limit of its size (ulimit -f), a write returns an error */
    const ProgressWords words = progress_words(&loaded);
    if (line.run.transport->processes && guard_begin(&words, expected_member(&line.run), &progress, &status))
        return status;
    fatal_begin();
    signals_begin(&stop, line.run.transport->processes);
    status = line.check ? run_and_check(&loaded, &line, arena, error) : run_and_report(&loaded, &line, progress, error);
    if (progress)
        /* The parent process is the guard. If it is stopped, only SIGCONT lets it notice that this process ends. */
        kill(getppid(), SIGCONT);
    return status;
}

static Status with_memory(int argc, char **argv, Arena *arena, Error *error)
{
    jmp_buf exhausted;
    arena->exhausted = &exhausted;
    if (setjmp(exhausted) != 0)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
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
    return status_exit(status);
}
