/* Every schedule trains: its per-microbatch losses are, bit for bit, those of the whole model on one rank, microbatch after
   microbatch, and its gradients are the same but for the order of sums. */

#include "runtime/vm/vm.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES_MAX = 64, COPIES_MAX = 2, MICROBATCHES_MAX = 64 };

/* DualPipe's own criterion: 1 - 2<x,y> / (<x,x> + <y,y>) (deepseek-ai/DualPipe, cal_diff in its examples). */
static const double GRADIENT_LIMIT = 1e-13;

/* What a run of one step left behind. */
typedef struct Result {
    double losses[MICROBATCHES_MAX];
    uint32_t microbatches;
    float *gradients[STAGES_MAX][COPIES_MAX];
    size_t counts[STAGES_MAX];
    pthread_mutex_t lock;
} Result;

static void on_step(void *context, const StepReport *report)
{
    Result *result = context;
    memcpy(result->losses, report->losses, result->microbatches * sizeof *report->losses);
}

static void on_gradient(void *context, const GradientView *view)
{
    Result *result = context;
    pthread_mutex_lock(&result->lock);
    if (view->stage < STAGES_MAX && view->pipe < COPIES_MAX) {
        float *copy = malloc(view->count * sizeof *copy + 1);
        if (copy)
            memcpy(copy, view->values, view->count * sizeof *copy);
        result->gradients[view->stage][view->pipe] = copy;
        result->counts[view->stage] = view->count;
    }
    pthread_mutex_unlock(&result->lock);
}

static void release(Result *result)
{
    for (int s = 0; s < STAGES_MAX; s++)
        for (int c = 0; c < COPIES_MAX; c++)
            free(result->gradients[s][c]);
    pthread_mutex_destroy(&result->lock);
}

static void run(const char *path, const char *model, bool reference, Result *result, uint32_t *stages)
{
    *result = (Result){.lock = PTHREAD_MUTEX_INITIALIZER};
    char *arguments[] = {"dprun",        "--model", (char *)model,  "--set",       "hidden=16", "--set", "sequence=8",
                         "--set",        "heads=2", "--set",        "microbatch_size=2", "--steps", "1",  "--deadline",
                         "60",           reference ? "--reference" : "--transport=local", (char *)path, NULL};
    int count = 0;
    while (arguments[count])
        count++;
    Arena arena = {0};
    Error error = {""};
    RunOptions options;
    LoadedProgram loaded;
    Session *session = NULL;
    Status status = options_parse(count, arguments, &arena, &options, &error);
    if (status == STATUS_OK)
        status = program_load(path, reference, false, &arena, &loaded, &error);
    if (status == STATUS_OK) {
        result->microbatches = loaded.program->microbatches;
        *stages = loaded.program->stages;
        assert_true(result->microbatches <= MICROBATCHES_MAX && *stages <= STAGES_MAX);
        const SessionHooks hooks = {.observer = {.context = result, .step = on_step, .gradient = on_gradient}};
        status = session_open(&loaded, &options, &hooks, &session, &error);
        if (status == STATUS_OK) {
            status = session_run(session, &error);
            session_close(session);
        }
    }
    if (status != STATUS_OK)
        fail_msg("%s: %s", path, error.text);
    arena_free(&arena);
}

static double difference(const float *x, const float *y, size_t count)
{
    double xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < count; i++) {
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
        xy += (double)x[i] * y[i];
    }
    return xx + yy > 0 ? 1 - 2 * xy / (xx + yy) : 0;
}

static void compare(const char *path, const char *model)
{
    Result pipelined, reference;
    uint32_t stages = 0;
    run(path, model, false, &pipelined, &stages);
    run(path, model, true, &reference, &stages);
    for (uint32_t m = 0; m < reference.microbatches; m++) {
        if (memcmp(&pipelined.losses[m], &reference.losses[m], sizeof(double)) != 0)
            fail_msg("%s, %s: microbatch %u: loss %a, the reference has %a", path, model, m, pipelined.losses[m], reference.losses[m]);
        assert_true(isfinite(reference.losses[m]) && reference.losses[m] > 0);
    }
    double largest = 0;
    for (uint32_t s = 0; s < stages; s++)
        for (int c = 0; c < COPIES_MAX; c++) {
            assert_non_null(reference.gradients[s][0]);
            assert_non_null(pipelined.gradients[s][0]);
            if (!pipelined.gradients[s][c])
                continue;
            assert_int_equal(pipelined.counts[s], reference.counts[s]);
            const double off = difference(pipelined.gradients[s][c], reference.gradients[s][0], reference.counts[s]);
            if (!(fabs(off) < GRADIENT_LIMIT))
                fail_msg("%s, %s: the gradient of stage %u is off by %g", path, model, s, off);
            for (size_t i = 0; i < reference.counts[s]; i++)
                largest = fmax(largest, fabs((double)reference.gradients[s][0][i]));
            if (c > 0) /* copies are updated alike: their sums have the same bits */
                assert_memory_equal(pipelined.gradients[s][c], pipelined.gradients[s][0], reference.counts[s] * sizeof(float));
        }
    assert_true(largest > 0);
    release(&pipelined);
    release(&reference);
}

static void schedule_equals_reference(void **state)
{
    const char *schedule = *state;
    char folder[] = "/tmp/schedules.XXXXXX", command[4096], program[200];
    const char *build = getenv("BUILD");
    assert_non_null(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int times = 2; times <= 3; times++) {
            snprintf(command, sizeof command, "%s/dpc --ranks %d --microbatches %d %s -o %s", build ? build : "build", ranks, times * ranks,
                     schedule, program);
            if (system(command) != 0)
                fail_msg("%s", command);
            compare(program, "gpt");
            compare(program, "mlp");
        }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    glob_t found;
    if (glob("schedules/*.dps", 0, NULL, &found) != 0) {
        fprintf(stderr, "no schedules/*.dps here: run from the top folder\n");
        return 1;
    }
    struct CMUnitTest *tests = calloc(found.gl_pathc, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < found.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){.name = found.gl_pathv[i], .test_func = schedule_equals_reference, .initial_state = found.gl_pathv[i]};
    const int failures = _cmocka_run_group_tests("schedules", tests, found.gl_pathc, NULL, NULL);
    free(tests);
    globfree(&found);
    return failures != 0;
}
