#pragma once

/* Whole runs of dprun's code in this process, on the CUDA device with the mock runtime, for comparison with the CPU
   device. */

#include "runtime/command/options.h"
#include "tests/cuda/mock/mock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, MICROBATCHES_MAX = 32 };

typedef struct Outcome {
    Status status;
    Error error;
    uint32_t microbatches;
    double losses[STEPS][MICROBATCHES_MAX];
    double norms[STEPS];
    double held_out;
    /* summed over all ranks, when all are ready to run: the memory that was planned, and the GPU memory that is
       allocated */
    size_t planned_bytes, gpu_bytes;
    size_t instructions; /* of all ranks, in LoadedProgram.program and in LoadedProgram.forward */
} Outcome;

static const Passes *run_passes; /* the passes of all runs; NULL: those of the model */
static char *run_deadline = "30";
static const char *run_trace; /* a path; NULL: no trace */

static inline void on_ready(void *context, const RunFacts *facts)
{
    Outcome *outcome = context;
    outcome->planned_bytes = facts->planned_bytes;
    outcome->gpu_bytes = mock_report().bytes;
}

static inline void on_step(void *context, const StepReport *report)
{
    Outcome *outcome = context;
    memcpy(outcome->losses[report->step - 1], report->losses, outcome->microbatches * sizeof *report->losses);
    outcome->norms[report->step - 1] = report->gradient_norm;
    outcome->held_out = report->held_out_loss;
}

/* Compiles schedules/`schedule`.dps and returns the path of the program, which no other test uses: they run at the same
   time. `options` are those of dpc; with "" the numbers of ranks and microbatches are the schedule's own. */
static inline const char *compile(const char *schedule, const char *options)
{
    static char path[256];
    char command[1024];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/tests/cuda/%s.%s.bin", build ? build : "build", program_invocation_short_name,
             schedule);
    snprintf(command, sizeof command, "%s/dpc %s schedules/%s.dps -o %s >%s.log", build ? build : "build", options,
             schedule, path, path);
    assert_int_equal(system(command), 0);
    return path;
}

static inline Outcome run(const char *path, const char *device, const char *model, const char *option)
{
    Arena arena = {0};
    CommandLine line;
    LoadedProgram loaded;
    Session *session = NULL;
    char *arguments[] = {"dprun",
                         "--device",
                         (char *)device,
                         "--model",
                         (char *)model,
                         "--set",
                         "hidden=16",
                         "--set",
                         "heads=2",
                         "--set",
                         "sequence=8",
                         "--set",
                         "microbatch_size=2",
                         "--steps",
                         "2",
                         "--deadline",
                         run_deadline,
                         (char *)option,
                         (char *)path,
                         NULL};
    Outcome outcome = {0};
    int count = 0;
    while (arguments[count])
        count++;
    outcome.status = options_parse(count, arguments, &arena, &line, &outcome.error);
    line.run.trace = run_trace;
    line.run.held_out = 1024; /* tokens; the default of 65536 would take longer than the few steps of such a run */
    const LoadOptions loading = options_loading(&line, line.reference);
    if (outcome.status == STATUS_OK)
        outcome.status = program_load(path, &loading, &arena, &loaded, &outcome.error);
    assert_int_equal(outcome.status, STATUS_OK);
    outcome.microbatches = loaded.program->microbatches;
    assert_true(outcome.microbatches <= MICROBATCHES_MAX);
    for (uint32_t r = 0; r < loaded.program->rank_count; r++)
        outcome.instructions += loaded.program->ranks[r].instruction_count + loaded.forward->ranks[r].instruction_count;
    const SessionHooks hooks = {.observer = {.context = &outcome, .ready = on_ready, .step = on_step},
                                .passes = run_passes};
    outcome.status = session_open(&loaded, &line.run, &hooks, &session, &outcome.error);
    if (outcome.status == STATUS_OK) {
        outcome.status = session_run(session, &outcome.error);
        assert_true(session_close(session));
    }
    mock_kernels_end();
    arena_free(&arena);
    return outcome;
}

static inline Outcome run_well(const char *path, const char *device, const char *model, const char *option)
{
    const Outcome outcome = run(path, device, model, option);
    if (outcome.status != STATUS_OK)
        fail_msg("%s on %s: %s", path, device, outcome.error.text);
    return outcome;
}

static inline void assert_clean(void)
{
    const MockReport report = mock_report();
    if (report.races)
        fail_msg("%zu races, first: %s", report.races, report.first_race);
    assert_int_equal(report.live, 0);
    assert_true(report.launches > 0);
}

/* Largest allowed relative differences between the numbers of two runs, in the first step and in later ones. A kernel's
   update rounds differently from the CPU device's, and later passes, and most of all the norm, amplify this. Numbers
   before the first update are much closer. */
typedef struct Bounds {
    double first_step, later;
} Bounds;

static inline void assert_near(double got, double expected, double bound, const char *what, int step, const char *of)
{
    if (!(fabs(got - expected) <= bound * expected))
        fail_msg("%s, step %d: %s %.12g, should be %.12g", what, step, of, got, expected);
}

static inline void assert_close(const Outcome *got, const Outcome *expected, Bounds bounds, const char *what)
{
    for (int s = 0; s < STEPS; s++) {
        const double bound = s == 0 ? bounds.first_step : bounds.later;
        for (uint32_t m = 0; m < expected->microbatches; m++)
            assert_near(got->losses[s][m], expected->losses[s][m], bound, what, s + 1, "a loss");
        assert_near(got->norms[s], expected->norms[s], bound, what, s + 1, "the norm");
    }
    assert_near(got->held_out, expected->held_out, bounds.later, what, STEPS, "the held out loss");
}
