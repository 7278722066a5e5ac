/* Every schedule trains: its per-microbatch losses are, bit for bit, those of the whole model on one rank, microbatch after
   microbatch (an asynchronous one: with the same versions of weights, and up to rounding where copies of a stage sum gradients),
   and its gradients are the same but for the order of sums. */

#include "tests/exec/run.h"
#include "tests/program/generator.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES_MAX = 64, COPIES_MAX = 4, MICROBATCHES_MAX = 64 };

/* After updates within the step, whose sums copies add in another order: of the gradient, and of a loss. */
static const double LATER_GRADIENT_LIMIT = 1e-9, LATER_LOSS_LIMIT = 1e-7;

/* What a run of one step left behind. */
typedef struct Result {
    double losses[MICROBATCHES_MAX];
    uint32_t microbatches;
    bool asynchronous; /* a stage has several updates: the last one's gradient */
    bool copies;       /* and several copies, whose gradients are summed in another order than on one rank: so weights differ */
    float *gradients[STAGES_MAX][COPIES_MAX]; /* the first copies, in no order */
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
    int which = 0;
    while (!result->asynchronous && which < COPIES_MAX && view->stage < STAGES_MAX && result->gradients[view->stage][which])
        which++;
    if (view->stage < STAGES_MAX && which < COPIES_MAX) {
        float *copy = malloc(view->count * sizeof *copy + 1);
        if (copy)
            memcpy(copy, view->values, view->count * sizeof *copy);
        free(result->gradients[view->stage][which]);
        result->gradients[view->stage][which] = copy;
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

/* `recipe` is that of the F&Bs instead of the program's own; NULL: that one. */
static void train(const char *path, const char *model, bool reference, Recipe *recipe, Result *result, uint32_t *stages)
{
    *result = (Result){.lock = PTHREAD_MUTEX_INITIALIZER};
    char *arguments[] = {"dprun",        "--model", (char *)model,  "--set",       "hidden=16", "--set", "sequence=8",
                         "--set",        "heads=2", "--set",        "microbatch_size=2", "--steps", "1",  "--deadline",
                         "60",           reference ? "--reference" : "--transport=local", (char *)path, NULL};
    Run run;
    run_load(&run, arguments);
    Program *program = run.loaded.program;
    program->recipe = recipe ? recipe : program->recipe;
    result->microbatches = program->microbatches;
    result->asynchronous = program->asynchronous;
    result->copies = program->group_count > 0;
    *stages = program->stages;
    assert_true(result->microbatches <= MICROBATCHES_MAX && *stages <= STAGES_MAX);
    run_to_end(&run, &(SessionHooks){.observer = {.context = result, .step = on_step, .gradient = on_gradient}});
}

static void compare(const char *path, const char *model)
{
    Result pipelined, reference;
    uint32_t stages = 0;
    train(path, model, false, NULL, &pipelined, &stages);
    train(path, model, true, NULL, &reference, &stages);
    const bool later = pipelined.asynchronous && pipelined.copies;
    for (uint32_t m = 0; m < reference.microbatches; m++) {
        if (later ? !(fabs(pipelined.losses[m] / reference.losses[m] - 1) < LATER_LOSS_LIMIT)
                  : memcmp(&pipelined.losses[m], &reference.losses[m], sizeof(double)) != 0)
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
            const double off = gradient_difference(pipelined.gradients[s][c], reference.gradients[s][0], reference.counts[s]);
            if (!(fabs(off) < (later ? LATER_GRADIENT_LIMIT : GRADIENT_LIMIT)))
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

static char folder[] = "/tmp/schedules.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Compiles, with dpc's arguments given, and compares. */
static void check(const char *arguments)
{
    char command[4096], program[200];
    const char *build = getenv("BUILD");
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    snprintf(command, sizeof command, "%s/dpc %s -o %s", build ? build : "build", arguments, program);
    if (system(command) != 0)
        fail_msg("%s", command);
    compare(program, "gpt");
    compare(program, "mlp");
}

static void schedule_equals_reference(void **state)
{
    const char *schedule = *state;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int times = 2; times <= 3; times++) {
            char arguments[1000];
            snprintf(arguments, sizeof arguments, "--ranks %d --microbatches %d %s", ranks, times * ranks, schedule);
            check(arguments);
        }
}

static void check_text(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    check(path);
}

/* Stages on several ranks in all combinations: numbers that do not divide, a stage whose next one is here for some microbatches
   and elsewhere for others, split backwards, two pipes of which one has more copies, an order from a table. */
static void replicas_equal_reference(void **state)
{
    (void)state;
    check("--ranks 5 --microbatches 7 -D replicas=2 -D replicated=2 schedules/1f1b-rr.dps");
    check("--ranks 4 --microbatches 7 -D replicas=4 schedules/1f1b-rr.dps");
    check("--ranks 6 --microbatches 5 -D replicas=2 -D replicated=3 schedules/1f1b-rr.dps");
    check_text("chunks.dps", "schedule chunks; ranks P = 3; microbatches M = 7;\n"
                             "pipe a: 4 stages, stage s of m on s == 0 ? m%2 : s == 1 ? m/2%2 : s == 2 ? 2 : m%3, M microbatches;\n"
                             "if r < 2 { nF0 : (M+1-r)/2; nF1 : r == 0 ? 4 : 3; nF2 : (M+2-r)/3; nI2 : (M+2-r)/3;\n"
                             "           nI1W : r == 0 ? 4 : 3; nI0W : (M+1-r)/2; nW : (M+2-r)/3; }\n"
                             "else { nF0 : M; nF1B1 : M/3; nB0 : M; }\n");
    check_text("pipes.dps", "schedule pipes; ranks P = 5; microbatches M = 8;\n"
                            "pipe a: 2 stages, stage s of m on 2*s + m%2, 5 microbatches;\n"
                            "pipe b: 2 stages, stage s on s == 0 ? 4 : 0, 3 microbatches;\n"
                            "if r == 0 { nF0 : 3; nF1 : 3; nB1 : 3; nB0 : 3; }\n"
                            "else { let n = r == 4 ? 3 : r == 1 || r == 3 ? 2 : 3; nF : n; nB : n; }\n");
    check_text("order.csv", "0F0,0F2,0F3,0B2,0B3,0B0\n"
                            "0F1,1F0,1F2,1I2,1I0,1W0,1W2,0B1\n"
                            "1F1,1F3,1B3,1B1\n");
}

/* Whatever the order inside an F&B: the same bits as without any, with as many layers a stage or not. */
static void recipes_change_no_bit(void **state)
{
    (void)state;
    static const char *const schedules[] = {"--ranks 4 --microbatches 10 schedules/dualpipe.dps",
                                            "--ranks 2 --microbatches 8 schedules/dualpipev.dps"};
    static const char *const models[] = {"gpt", "mlp"};
    uint64_t seed = 11;
    for (int s = 0; s < 2; s++) {
        char command[4096], program[200];
        const char *build = getenv("BUILD");
        snprintf(program, sizeof program, "%s/prog.bin", folder);
        snprintf(command, sizeof command, "sed '/^overlap F&B/,/^}/d' %s >%s/plain.dps && %s/dpc %.*s %s/plain.dps -o %s",
                 strstr(schedules[s], "schedules/"), folder, build ? build : "build", (int)(strstr(schedules[s], "schedules/") - schedules[s]),
                 schedules[s], folder, program);
        if (system(command) != 0)
            fail_msg("%s", command);
        for (int m = 0; m < 2; m++) {
            Result plain, ordered;
            uint32_t stages = 0;
            train(program, models[m], false, NULL, &plain, &stages);
            for (int i = 0; i < 8; i++) {
                Recipe recipe = random_recipe(&seed);
                train(program, models[m], false, &recipe, &ordered, &stages);
                assert_memory_equal(plain.losses, ordered.losses, plain.microbatches * sizeof *plain.losses);
                for (uint32_t k = 0; k < stages; k++)
                    assert_memory_equal(plain.gradients[k][0], ordered.gradients[k][0], plain.counts[k] * sizeof(float));
                release(&ordered);
            }
            release(&plain);
        }
    }
}

int main(void)
{
    glob_t found;
    if (glob("schedules/*.dps", 0, NULL, &found) != 0) {
        fprintf(stderr, "no schedules/*.dps here: run from the top folder\n");
        return 1;
    }
    struct CMUnitTest *tests = calloc(found.gl_pathc + 2, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < found.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){.name = found.gl_pathv[i], .test_func = schedule_equals_reference, .initial_state = found.gl_pathv[i]};
    tests[found.gl_pathc] = (struct CMUnitTest)cmocka_unit_test(replicas_equal_reference);
    tests[found.gl_pathc + 1] = (struct CMUnitTest)cmocka_unit_test(recipes_change_no_bit);
    const int failures = _cmocka_run_group_tests("schedules", tests, found.gl_pathc + 2, make_folder, remove_folder);
    free(tests);
    globfree(&found);
    return failures != 0;
}
