#pragma once

/* Compiles schedules, trains a small model with them, and compares all numbers of two trainings to the bit. */

#include "base/file.h"
#include "tests/exec/run.h"
#include "tests/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4, STAGES_MAX = 64, MICROBATCHES_MAX = 64 };

/* All numbers of a training. */
typedef struct Numbers {
    double losses[STEPS][MICROBATCHES_MAX], norms[STEPS], held_out;
    /* a hash of each stage's gradient; 0: none, as in forward-only and asynchronous runs or if replicas divide the
       experts */
    uint64_t gradients[STEPS][STAGES_MAX];
} Numbers;

typedef struct Result {
    Numbers numbers;
    uint32_t microbatches;
    bool asynchronous, forward_only, copies_differ;
    char *weights; /* contents of the saved file */
    size_t bytes;
    Arena arena;
    pthread_mutex_t lock;
} Result;

static char folder[] = "/tmp/schedules.XXXXXX";
static char experts[sizeof folder + 20]; /* a file with the settings of a small model with experts */

static inline int make_folder(void **state)
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

static inline int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static inline void on_step(void *context, const StepReport *report)
{
    Result *result = context;
    Numbers *numbers = &result->numbers;
    memcpy(numbers->losses[report->step - 1], report->losses, result->microbatches * sizeof *report->losses);
    numbers->norms[report->step - 1] = report->gradient_norm;
    if (report->has_held_out)
        numbers->held_out = report->held_out_loss;
}

/* An FNV-1a hash that is never 0. */
static inline uint64_t hash(const void *bytes, size_t size)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        value = (value ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return value | 1;
}

/* Notes a hash of the gradient, and whether copies of a stage have different sums. In an asynchronous training it notes
   0. */
static inline void on_gradient(void *context, const GradientView *view)
{
    Result *result = context;
    const uint64_t found = hash(view->values, view->count * sizeof *view->values);
    pthread_mutex_lock(&result->lock);
    uint64_t *known = &result->numbers.gradients[view->step - 1][view->stage];
    result->copies_differ |= !result->asynchronous && *known && *known != found;
    *known = result->asynchronous ? 0 : found;
    pthread_mutex_unlock(&result->lock);
}

static inline void release(Result *result)
{
    arena_free(&result->arena);
    pthread_mutex_destroy(&result->lock);
}

/* What to train. With only `path` and `model`: one pipeline, with the recipes of the program. */
typedef struct Training {
    const char *path, *model;
    uint32_t layers; /* 0: one per stage */
    int replicas;    /* 0: one */
    /* how many replicas divide the experts of a layer (--expert-parallel); 0: each replica has all experts */
    int shards;
    bool reference;
    const Recipes *recipes; /* used instead of the program's recipes; NULL: those of the program */
} Training;

static inline void train(const Training *training, Result *result)
{
    char weights[100], layers[32], replicas[32], shards[40];
    snprintf(weights, sizeof weights, "%s/weights", folder);
    snprintf(layers, sizeof layers, "layers=%u", training->layers);
    snprintf(replicas, sizeof replicas, "--replicas=%d", training->replicas ? training->replicas : 1);
    snprintf(shards, sizeof shards, "--expert-parallel=%d", training->shards ? training->shards : 1);
    *result = (Result){.lock = PTHREAD_MUTEX_INITIALIZER};
    // clang-format off
    char *arguments[] = {"dprun", "--model", (char *)training->model, "--set", "hidden=16", "--set", "sequence=8",
                         "--set", layers, "--set", "heads=2", "--set", "microbatch_size=2", "--steps", "4",
                         "--deadline", "60", "--save", weights, replicas, shards,
                         training->reference ? "--reference" : "--transport=local", (char *)training->path, NULL};
    // clang-format on
    Run run;
    Error error = {""};
    run_load(&run, arguments);
    Program *program = run.loaded.program;
    if (training->recipes)
        program->recipes = *training->recipes;
    result->microbatches = run.loaded.replicas * program->microbatches;
    result->asynchronous = program->asynchronous;
    result->forward_only = program->forward_only;
    assert_true(result->microbatches <= MICROBATCHES_MAX && program->stages <= STAGES_MAX);
    const bool divided = run.loaded.shards > 1; /* if so, the gradients of replicas differ */
    run_to_end(&run, &(SessionHooks){
                         .observer = {.context = result, .step = on_step, .gradient = divided ? NULL : on_gradient}});
    assert_false(result->copies_differ);
    if (file_read(weights, &result->arena, &result->weights, &result->bytes, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

static inline void assert_equal_numbers(const char *what, const Result *pipelined, const Result *reference)
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
        assert_true(reference->forward_only || r->norms[step] > 0);
    }
    assert_memory_equal(p->gradients, r->gradients, sizeof p->gradients);
    assert_memory_equal(&p->held_out, &r->held_out, sizeof p->held_out);
    assert_int_equal(pipelined->bytes, reference->bytes);
    if (memcmp(pipelined->weights, reference->weights, reference->bytes) != 0)
        fail_msg("%s: other weights are saved", what);
}

/* Runs dpc with these arguments. Writes the path of the prog.bin to `program`; it is the same in every call. */
static inline void compile_program(const char *arguments, char program[static 200])
{
    char command[4096];
    const char *build = getenv("BUILD");
    snprintf(program, 200, "%s/prog.bin", folder);
    snprintf(command, sizeof command, "%s/dpc %s -o %s", build ? build : "build", arguments, program);
    if (system(command) != 0)
        fail_msg("%s", command);
}
