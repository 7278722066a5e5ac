/* Every schedule trains: over several steps its losses, norms of gradients, held-out loss and saved weights equal those
   of the whole model on one rank, which runs one microbatch after the other. They are equal to the bit. (For an
   asynchronous program the reference uses the same versions of weights.) */

#include "runtime/base/file.h"
#include "tests/exec/run.h"
#include "tests/exec/sanitized.h"
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

enum { STEPS = 4, STAGES_MAX = 64, MICROBATCHES_MAX = 64 };

/* All numbers of a training. */
typedef struct Numbers {
    double losses[STEPS][MICROBATCHES_MAX], norms[STEPS], held_out;
    uint64_t gradients[STEPS][STAGES_MAX]; /* a hash of each stage's gradient; unused if asynchronous */
} Numbers;

typedef struct Result {
    Numbers numbers;
    uint32_t microbatches;
    bool asynchronous, copies_differ;
    char *weights; /* contents of the saved file */
    size_t bytes;
    Arena arena;
    pthread_mutex_t lock;
} Result;

static char folder[] = "/tmp/schedules.XXXXXX";
static char experts[sizeof folder + 20]; /* a file with the settings of a small model with experts */

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(experts, sizeof experts, "%s/moe.model", folder);
    FILE *file = fopen(experts, "w");
    if (!file)
        return 1;
    fputs("model = moe\ndense_layers = 1\nexperts = 6\nexperts_per_token = 2\nexpert_groups = 3\n"
          "groups_per_token = 2\nexpert_hidden = 8\nbias_rate = 0.01\nbalance_loss = 0.01\n",
          file);
    return fclose(file);
}

static int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void on_step(void *context, const StepReport *report)
{
    Result *result = context;
    Numbers *numbers = &result->numbers;
    memcpy(numbers->losses[report->step - 1], report->losses, result->microbatches * sizeof *report->losses);
    numbers->norms[report->step - 1] = report->gradient_norm;
    if (report->has_held_out)
        numbers->held_out = report->held_out_loss;
}

/* An FNV-1a hash that is never 0. */
static uint64_t hash(const void *bytes, size_t size)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return value | 1;
}

/* Checks that copies of a stage have the same sum. */
static void on_gradient(void *context, const GradientView *view)
{
    Result *result = context;
    const uint64_t found = hash(view->values, view->count * sizeof *view->values);
    pthread_mutex_lock(&result->lock);
    uint64_t *known = &result->numbers.gradients[view->step - 1][view->stage];
    result->copies_differ |= !result->asynchronous && *known && *known != found;
    *known = result->asynchronous ? 0 : found;
    pthread_mutex_unlock(&result->lock);
}

static void release(Result *result)
{
    arena_free(&result->arena);
    pthread_mutex_destroy(&result->lock);
}

/* `recipe` NULL: the F&Bs have the program's own recipe. `layers` 0: one per stage. */
static void train(const char *path, const char *model, uint32_t layers, bool reference, Recipe *recipe, Result *result)
{
    char weights[100], set_layers[32];
    snprintf(weights, sizeof weights, "%s/weights", folder);
    snprintf(set_layers, sizeof set_layers, "layers=%u", layers);
    *result = (Result){.lock = PTHREAD_MUTEX_INITIALIZER};
    char *arguments[] = {"dprun",
                         "--model",
                         (char *)model,
                         "--set",
                         "hidden=16",
                         "--set",
                         "sequence=8",
                         "--set",
                         set_layers,
                         "--set",
                         "heads=2",
                         "--set",
                         "microbatch_size=2",
                         "--steps",
                         "4",
                         "--deadline",
                         "60",
                         "--save",
                         weights,
                         reference ? "--reference" : "--transport=local",
                         (char *)path,
                         NULL};
    Run run;
    Error error = {""};
    run_load(&run, arguments);
    Program *program = run.loaded.program;
    program->recipe = recipe ? recipe : program->recipe;
    result->microbatches = program->microbatches;
    result->asynchronous = program->asynchronous;
    assert_true(program->microbatches <= MICROBATCHES_MAX && program->stages <= STAGES_MAX);
    run_to_end(&run, &(SessionHooks){.observer = {.context = result, .step = on_step, .gradient = on_gradient}});
    assert_false(result->copies_differ);
    if (file_read(weights, &result->arena, &result->weights, &result->bytes, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

static void assert_equal_numbers(const char *what, const Result *pipelined, const Result *reference)
{
    const Numbers *p = &pipelined->numbers, *r = &reference->numbers;
    for (int step = 0; step < STEPS; step++) {
        for (uint32_t m = 0; m < reference->microbatches; m++) {
            if (memcmp(&p->losses[step][m], &r->losses[step][m], sizeof(double)) != 0)
                fail_msg("%s: step %d, microbatch %u: loss %a, not %a", what, step + 1, m, p->losses[step][m],
                         r->losses[step][m]);
            assert_true(isfinite(r->losses[step][m]) && r->losses[step][m] > 0);
        }
        if (memcmp(&p->norms[step], &r->norms[step], sizeof(double)) != 0)
            fail_msg("%s: step %d: norm %a, not %a", what, step + 1, p->norms[step], r->norms[step]);
        assert_true(r->norms[step] > 0);
    }
    assert_memory_equal(p->gradients, r->gradients, sizeof p->gradients);
    assert_memory_equal(&p->held_out, &r->held_out, sizeof p->held_out);
    assert_int_equal(pipelined->bytes, reference->bytes);
    if (memcmp(pipelined->weights, reference->weights, reference->bytes) != 0)
        fail_msg("%s: other weights are saved", what);
}

static void compare(const char *path, const char *arguments, const char *model)
{
    Result pipelined, reference;
    char what[2000];
    snprintf(what, sizeof what, "%s, %s, against its reference", arguments, model);
    train(path, model, 0, false, NULL, &pipelined);
    train(path, model, 0, true, NULL, &reference);
    assert_equal_numbers(what, &pipelined, &reference);
    release(&pipelined);
    release(&reference);
}

/* Compiles with the given arguments of dpc. */
static void compile_program(const char *arguments, char program[static 200])
{
    char command[4096];
    const char *build = getenv("BUILD");
    snprintf(program, 200, "%s/prog.bin", folder);
    snprintf(command, sizeof command, "%s/dpc %s -o %s", build ? build : "build", arguments, program);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void check(const char *arguments)
{
    char program[200];
    compile_program(arguments, program);
    compare(program, arguments, "gpt");
    compare(program, arguments, "mlp");
    compare(program, arguments, experts);
}

/* Under a sanitizer, which is twenty times slower, only some of the sizes: what it finds does not depend on them. */
static void schedule_equals_reference(void **state)
{
    const char *schedule = *state;
    for (int ranks = SANITIZED ? 4 : 2; ranks <= 8; ranks *= 2)
        for (int times = 2; times <= (SANITIZED ? 2 : 3); times++) {
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

/* Stages on several ranks in all combinations: numbers that do not divide each other; a stage whose next one is on the
   same rank for some microbatches and elsewhere for others; split backwards; two pipes, of which one has more copies;
   an order from a table. */
static void replicas_equal_reference(void **state)
{
    (void)state;
    check("--ranks 5 --microbatches 7 -D replicas=2 -D replicated=2 schedules/1f1b-rr.dps");
    check("--ranks 4 --microbatches 7 -D replicas=4 schedules/1f1b-rr.dps");
    check("--ranks 6 --microbatches 5 -D replicas=2 -D replicated=3 schedules/1f1b-rr.dps");
    check_text("chunks.dps",
               "schedule chunks; ranks P = 3; microbatches M = 7;\n"
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

/* As the header of dprun promises. The norms are sums over other stages, so later steps differ in their last bits. */
static void equal_layers_and_microbatches_train_the_same_model(void **state)
{
    (void)state;
    static const char *const schedules[] = {
        "--ranks 2 --microbatches 6 schedules/1f1b.dps", "--ranks 2 --microbatches 6 schedules/dualpipev.dps",
        "--ranks 4 --microbatches 6 schedules/chimera.dps", "--ranks 3 --microbatches 6 schedules/zb-h1.dps"};
    Result first, other;
    char program[200];
    compile_program(schedules[0], program);
    train(program, "gpt", 4, false, NULL, &first);
    for (int s = 1; s < 4; s++) {
        compile_program(schedules[s], program);
        train(program, "gpt", 4, false, NULL, &other);
        assert_memory_equal(first.numbers.losses[0], other.numbers.losses[0], sizeof first.numbers.losses[0]);
        for (int step = 0; step < STEPS; step++)
            assert_true(fabs(first.numbers.norms[step] / other.numbers.norms[step] - 1) < 1e-5);
        assert_true(fabs(first.numbers.held_out - other.numbers.held_out) < 1e-5);
        release(&other);
    }
    release(&first);
}

/* The order inside an F&B does not change a bit, with one layer per stage or more. */
static void recipes_change_no_bit(void **state)
{
    (void)state;
    static const char *const schedules[] = {"--ranks 4 --microbatches 10 schedules/dualpipe.dps",
                                            "--ranks 2 --microbatches 8 schedules/dualpipev.dps"};
    const char *const models[] = {"gpt", "mlp", experts};
    uint64_t seed = 11;
    for (int s = 0; s < 2; s++) {
        char command[4096], program[200];
        const char *build = getenv("BUILD");
        snprintf(program, sizeof program, "%s/prog.bin", folder);
        snprintf(command, sizeof command,
                 "sed '/^overlap F&B/,/^}/d' %s >%s/plain.dps && %s/dpc %.*s %s/plain.dps -o %s",
                 strstr(schedules[s], "schedules/"), folder, build ? build : "build",
                 (int)(strstr(schedules[s], "schedules/") - schedules[s]), schedules[s], folder, program);
        if (system(command) != 0)
            fail_msg("%s", command);
        for (int m = 0; m < 3; m++) {
            Result plain, ordered;
            train(program, models[m], 0, false, NULL, &plain);
            for (int i = 0; i < 8; i++) {
                Recipe recipe = random_recipe(&seed);
                train(program, models[m], 0, false, &recipe, &ordered);
                assert_equal_numbers("with a recipe, against none", &ordered, &plain);
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
    struct CMUnitTest *tests = calloc(found.gl_pathc + 3, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < found.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){
            .name = found.gl_pathv[i], .test_func = schedule_equals_reference, .initial_state = found.gl_pathv[i]};
    tests[found.gl_pathc] = (struct CMUnitTest)cmocka_unit_test(replicas_equal_reference);
    tests[found.gl_pathc + 1] = (struct CMUnitTest)cmocka_unit_test(recipes_change_no_bit);
    tests[found.gl_pathc + 2] = (struct CMUnitTest)cmocka_unit_test(equal_layers_and_microbatches_train_the_same_model);
    const int failures = _cmocka_run_group_tests("schedules", tests, found.gl_pathc + 3, make_folder, remove_folder);
    free(tests);
    globfree(&found);
    return failures != 0;
}
