#pragma once

/* Runs dprun within a test, as its main does: options, load, open, run, close. An error fails the test. */

#include "runtime/command/options.h"
#include "tests/test.h"

typedef struct Run {
    Arena arena;
    CommandLine line;
    LoadedProgram loaded;
} Run;

enum { RUN_HELD_OUT = 1024 }; /* tokens; the default of 65536 would take longer than the few steps of such a run */

/* `arguments` are those of dprun, ended by NULL. The held-out loss is over RUN_HELD_OUT tokens. */
static inline void run_load(Run *run, char **arguments)
{
    Error error = {""};
    int count = 0;
    *run = (Run){0};
    while (arguments[count])
        count++;
    Status status = options_parse(count, arguments, &run->arena, &run->line, &error);
    run->line.run.held_out = RUN_HELD_OUT;
    const LoadOptions loading = options_loading(&run->line, run->line.reference);
    if (status == STATUS_OK)
        status = program_load(run->line.program, &loading, &run->arena, &run->loaded, &error);
    if (status != STATUS_OK)
        fail_msg("%s: %s", arguments[count - 1], error.text);
}

/* Runs all steps and frees the run. */
static inline void run_to_end(Run *run, const SessionHooks *hooks)
{
    Error error = {""};
    Session *session = NULL;
    Status status = session_open(&run->loaded, &run->line.run, hooks, &session, &error);
    if (status == STATUS_OK) {
        status = session_run(session, &error);
        assert_true(session_close(session));
    }
    if (status != STATUS_OK)
        fail_msg("%s: %s", run->line.program, error.text);
    arena_free(&run->arena);
}

/* The limit of gradient_difference, the error measure of DualPipe's tests: 1 - 2<x,y> / (<x,x> + <y,y>)
   (deepseek-ai/DualPipe, cal_diff in its examples). */
static const double GRADIENT_LIMIT = 1e-13;

static inline double gradient_difference(const float *x, const float *y, size_t count)
{
    double xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < count; i++) {
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
        xy += (double)x[i] * y[i];
    }
    return xx + yy > 0 ? 1 - 2 * xy / (xx + yy) : 0;
}
