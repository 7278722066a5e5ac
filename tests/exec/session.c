/* Whole runs of small pipelines in this process: equal numbers in all runs, and the ways in which a run can end. */
#include "base/clock.h"
#include "base/file.h"
#include "tests/exec/pipelines.h"
#include "tests/exec/run.h"
#include "tests/test.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS_MAX = 4, MICROBATCHES_MAX = 16, STAGES_MAX = 4, COPIES_MAX = 2 };

typedef struct Outcome {
    Status status;
    Error error;
    uint64_t steps;
    double losses[STEPS_MAX][MICROBATCHES_MAX];
    double held_out, bubble;
    bool has_held_out, closed;
    pthread_mutex_t lock;
    float *gradients[STAGES_MAX][COPIES_MAX]; /* gradients of the first step */
    size_t counts[STAGES_MAX];
    atomic_bool stop;
    bool stop_after_first;
    uint32_t microbatches;
    double seconds;
} Outcome;

static void on_step(void *context, const StepReport *report)
{
    Outcome *outcome = context;
    if (report->step <= STEPS_MAX)
        memcpy(outcome->losses[report->step - 1], report->losses, outcome->microbatches * sizeof *report->losses);
    outcome->steps = report->step;
    outcome->has_held_out = report->has_held_out;
    outcome->held_out = report->held_out_loss;
    outcome->bubble = report->bubble_rate;
    if (outcome->stop_after_first)
        atomic_store(&outcome->stop, true);
}

static void on_gradient(void *context, const GradientView *view)
{
    Outcome *outcome = context;
    if (view->step != 1)
        return;
    float *copy = malloc(view->count * sizeof *copy + 1);
    if (!copy)
        return;
    memcpy(copy, view->values, view->count * sizeof *copy);
    pthread_mutex_lock(&outcome->lock);
    outcome->gradients[view->stage][view->pipe] = copy;
    outcome->counts[view->stage] = view->count;
    pthread_mutex_unlock(&outcome->lock);
}

typedef struct Setting {
    uint32_t ranks, pipes, microbatches;
    bool reference, forward_only;
    const Passes *passes;
    const char *device; /* a device that the option --device does not offer; NULL: the arguments name the device */
    bool stop_after_first;
    char *arguments[12];
} Setting;

static Outcome run(const Setting *setting)
{
    Arena arena = {0};
    CommandLine line;
    LoadedProgram loaded;
    Session *session = NULL;
    char *arguments[48] = {"dprun",      "--set", "hidden=16",         "--set",      "heads=2", "--set",
                           "sequence=8", "--set", "microbatch_size=2", "--deadline", "20",      "--transport",
                           "local"};
    int count = 13;
    for (size_t i = 0; i < 12 && setting->arguments[i]; i++)
        arguments[count++] = setting->arguments[i];
    if (setting->reference)
        arguments[count++] = "--reference";
    if (setting->forward_only)
        arguments[count++] = "--forward-only";
    arguments[count++] = "prog.bin";
    Outcome outcome = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .stop_after_first = setting->stop_after_first, .closed = true};
    Program *program = pipeline_program(&arena, setting->ranks, setting->pipes, setting->microbatches);
    outcome.microbatches = program->microbatches;
    outcome.status = options_parse(count, arguments, &arena, &line, &outcome.error);
    if (setting->device)
        line.run.device = setting->device;
    if (outcome.status == STATUS_OK)
        outcome.status = program_derive(program,
                                        &(LoadOptions){.reference = setting->reference,
                                                       .forward_only = setting->forward_only,
                                                       .replicas = (uint32_t)line.replicas},
                                        &arena, &loaded, &outcome.error);
    const SessionHooks hooks = {
        .observer = {.context = &outcome, .step = on_step, .gradient = on_gradient},
        .passes = setting->passes,
        .stop = &outcome.stop,
    };
    const int64_t begun = clock_nanoseconds();
    if (outcome.status == STATUS_OK)
        outcome.status = session_open(&loaded, &line.run, &hooks, &session, &outcome.error);
    if (outcome.status == STATUS_OK) {
        outcome.status = session_run(session, &outcome.error);
        outcome.seconds = (double)(clock_nanoseconds() - begun) * 1e-9;
        outcome.closed = session_close(session);
    }
    arena_free(&arena);
    return outcome;
}

static void release(Outcome *outcome)
{
    for (int s = 0; s < STAGES_MAX; s++)
        for (int c = 0; c < COPIES_MAX; c++)
            free(outcome->gradients[s][c]);
}

static Outcome run_well(const Setting *setting)
{
    Outcome outcome = run(setting);
    if (outcome.status != STATUS_OK)
        fail_msg("status %d: %s", (int)outcome.status, outcome.error.text);
    assert_true(outcome.closed);
    return outcome;
}

static Status empty_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage, (void)error;
    if (buffers->loss)
        *buffers->loss = 1;
    return STATUS_OK;
}

static Status empty_backward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage, (void)buffers, (void)error;
    return STATUS_OK;
}

static Status endless_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    while (!buffers->y)
        pause();
    return empty_forward(stage, buffers, error);
}

/* A pass never returns. The run ends nevertheless, without freeing its memory, so this test runs in a process of its
   own. It is the first test, since it forks. */
TEST(test_endless_pass)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const Passes passes = {
            .forward = endless_forward, .backward_input = empty_backward, .backward_weight = empty_backward};
        const Setting setting = {
            .ranks = 2, .pipes = 1, .microbatches = 1, .passes = &passes, .arguments = {"--steps=1", "--deadline=0.2"}};
        const Outcome outcome = run(&setting);
        const bool told =
            strstr(outcome.error.text, "no rank has made progress for 0.2 s (--deadline): rank 0 at instruction "
                                       "4 (WAIT s1, pipeline.dps:20) waiting for rank 1, "
                                       "rank 1 at instruction 2 (F") != NULL;
        const bool twice = strstr(outcome.error.text, "not returned yet");
        if (!told || twice)
            fprintf(stderr, "%s\n", outcome.error.text);
        _exit(outcome.status == STATUS_RUN_FAILED && !outcome.closed && told && !twice ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Losses equal those of the whole model on one rank to the bit; gradients are equal by DualPipe's error measure. Copies
   of a stage have gradients with the same bits. */
TEST(test_equals_reference)
{
    static const Setting shapes[] = {
        {.ranks = 1, .pipes = 1, .microbatches = 3},
        {.ranks = 3, .pipes = 1, .microbatches = 2},
        {.ranks = 2, .pipes = 2, .microbatches = 2},
        {.ranks = 4, .pipes = 2, .microbatches = 1},
    };
    for (size_t i = 0; i < 2 * (sizeof shapes / sizeof *shapes); i++) {
        Setting setting = shapes[i / 2];
        setting.arguments[0] = i % 2 ? "--model=mlp" : "--model=gpt";
        setting.arguments[1] = "--steps=1";
        Outcome pipeline = run_well(&setting);
        setting.reference = true;
        Outcome reference = run_well(&setting);
        assert_memory_equal(pipeline.losses[0], reference.losses[0], pipeline.microbatches * sizeof(double));
        assert_true(pipeline.losses[0][0] > 0);
        for (uint32_t s = 0; s < setting.ranks; s++)
            for (uint32_t c = 0; c < setting.pipes; c++) {
                assert_int_equal(pipeline.counts[s], reference.counts[s]);
                assert_true(gradient_difference(pipeline.gradients[s][c], reference.gradients[s][0],
                                                reference.counts[s]) < GRADIENT_LIMIT);
                assert_memory_equal(pipeline.gradients[s][c], pipeline.gradients[s][0],
                                    reference.counts[s] * sizeof(float));
            }
        release(&pipeline);
        release(&reference);
    }
}

TEST(test_runs_equal)
{
    const Setting setting = {.ranks = 4, .pipes = 2, .microbatches = 2, .arguments = {"--steps=3"}};
    Outcome one = run_well(&setting), two = run_well(&setting);
    assert_memory_equal(one.losses, two.losses, sizeof one.losses);
    assert_true(one.steps == 3 && one.losses[0][0] != one.losses[2][0]);
    assert_true(one.has_held_out && one.held_out == two.held_out && one.held_out > 0);
    cpu_set_t processors;
    assert_int_equal(sched_getaffinity(0, sizeof processors, &processors), 0);
    if (CPU_COUNT(&processors) < 4) /* with fewer processors than ranks dprun measures no bubble */
        assert_true(isnan(one.bubble) && isnan(two.bubble));
    else
        assert_true(one.bubble >= 0 && one.bubble < 1);
    release(&one);
    release(&two);
}

/* The oracle device computes in double, including the sums over copies of a stage. Its losses equal those of the whole
   model on one rank to the bit. They differ from the CPU device's by the rounding of float. */
TEST(test_oracle)
{
    Setting setting = {.ranks = 4, .pipes = 2, .microbatches = 2, .arguments = {"--steps=3"}};
    Outcome cpu = run_well(&setting);
    setting.device = "oracle";
    Outcome oracle = run_well(&setting);
    setting.reference = true;
    Outcome reference = run_well(&setting);
    assert_memory_equal(oracle.losses, reference.losses, sizeof oracle.losses);
    for (uint32_t step = 0; step < 3; step++)
        for (uint32_t m = 0; m < oracle.microbatches; m++)
            assert_true(fabs(oracle.losses[step][m] - cpu.losses[step][m]) < 1e-5);
    assert_memory_not_equal(oracle.losses, cpu.losses, sizeof oracle.losses);
    release(&cpu);
    release(&oracle);
    release(&reference);
}

TEST(test_forward_only)
{
    char path[] = "/tmp/outputs.XXXXXX";
    close(mkstemp(path));
    Setting setting = {.ranks = 4, .pipes = 2, .microbatches = 2, .arguments = {"--steps=1"}};
    Outcome full = run_well(&setting);
    setting.forward_only = true;
    setting.arguments[0] = "--outputs";
    setting.arguments[1] = path;
    Outcome forward = run_well(&setting);
    assert_memory_equal(full.losses[0], forward.losses[0], full.microbatches * sizeof(double));
    assert_true(!forward.has_held_out && !forward.gradients[0][0]);
    struct stat there;
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_size, 4 * 16 * 256 * sizeof(float)); /* microbatches * tokens * vocabulary */

    char *outputs, *reference_outputs;
    size_t size;
    Arena arena = {0};
    Error error;
    assert_int_equal(file_read(path, &arena, &outputs, &size, &error), STATUS_OK);
    setting.reference = true;
    Outcome reference = run_well(&setting);
    assert_int_equal(file_read(path, &arena, &reference_outputs, &size, &error), STATUS_OK);
    assert_memory_equal(outputs, reference_outputs, size);
    assert_memory_equal(reference.losses[0], forward.losses[0], full.microbatches * sizeof(double));
    arena_free(&arena);
    unlink(path);
    release(&full);
    release(&forward);
    release(&reference);
}

TEST(test_stop)
{
    const Setting setting = {
        .ranks = 2, .pipes = 1, .microbatches = 2, .stop_after_first = true, .arguments = {"--steps=1000"}};
    Outcome outcome = run_well(&setting);
    assert_true(outcome.steps >= 1 && outcome.steps <= 3 && outcome.has_held_out);
    release(&outcome);
}

/* --- failures --- */

static Status failing_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage;
    return buffers->dy || !buffers->y ? error_set(error, STATUS_RUN_FAILED, "the device is on fire") : STATUS_OK;
}

/* An F that takes 0.7 s on the last stage. */
static Status slow_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    if (!buffers->y)
        usleep(700000);
    return empty_forward(stage, buffers, error);
}

/* An F that computes for longer than the deadline on the last stage. */
static Status long_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    const int64_t end = clock_nanoseconds() + 3000000000;
    while (!buffers->y && clock_nanoseconds() < end)
        ;
    return empty_forward(stage, buffers, error);
}

static Status diverged_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage, (void)error;
    if (buffers->loss)
        *buffers->loss = NAN;
    return STATUS_OK;
}

static void expect_failure(const Setting *setting, const char *const *words)
{
    Outcome outcome = run(setting);
    /* on a busy machine slow_forward may end before the watchdog notices: then the run is repeated */
    for (int tries = 1; tries < 20 && outcome.status == STATUS_OK && setting->passes->forward == slow_forward;
         tries++) {
        release(&outcome);
        outcome = run(setting);
    }
    assert_int_equal(outcome.status, STATUS_RUN_FAILED);
    for (; *words; words++)
        if (!strstr(outcome.error.text, *words))
            fail_msg("\"%s\" is not in \"%s\"", *words, outcome.error.text);
    assert_true(outcome.closed);
    release(&outcome);
}

/* If a pass fails, the other ranks fail as a consequence. dprun reports the error that occurred first. */
TEST(test_failing_pass)
{
    const Passes passes = {
        .forward = failing_forward, .backward_input = empty_backward, .backward_weight = empty_backward};
    const Setting setting = {.ranks = 4, .pipes = 1, .microbatches = 2, .passes = &passes, .arguments = {"--steps=1"}};
    expect_failure(&setting,
                   (const char *const[]){"rank 3, instruction 2 (F", "pipeline.dps:10): the device is on fire", NULL});
    const Setting replicas = {
        .ranks = 2, .pipes = 1, .microbatches = 2, .passes = &passes, .arguments = {"--steps=1", "--replicas=2"}};
    expect_failure(&replicas,
                   (const char *const[]){"rank 1 of replica ", ", instruction 2 (F", "the device is on fire", NULL});
}

TEST(test_divergence)
{
    const Passes passes = {
        .forward = diverged_forward, .backward_input = empty_backward, .backward_weight = empty_backward};
    const Setting setting = {.ranks = 2, .pipes = 1, .microbatches = 2, .passes = &passes, .arguments = {"--steps=5"}};
    expect_failure(&setting, (const char *const[]){"step 1: the loss of microbatch 0, on rank 1, is not finite",
                                                   "diverged", NULL});
}

/* A backward of the last stage makes a weight infinite. The losses and gradients stay finite, so only the check of the
   weights finds it. */
static Status spoiling_backward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    if (!buffers->dy) {
        union {
            const void *read;
            float *written;
        } parameters = {.read = buffers->parameters};
        *parameters.written = INFINITY;
    }
    return empty_backward(stage, buffers, error);
}

TEST(test_infinite_weights)
{
    const Passes passes = {
        .forward = empty_forward, .backward_input = spoiling_backward, .backward_weight = empty_backward};
    char save[] = "--save=/tmp/session-weights.XXXXXX", diverged[64];
    char *path = save + 7;
    struct stat there;
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    snprintf(diverged, sizeof diverged, "%s.diverged", path);
    Setting setting = {
        .ranks = 2, .pipes = 1, .microbatches = 2, .passes = &passes, .arguments = {"--steps=1", "--model=mlp", save}};
    expect_failure(
        &setting,
        (const char *const[]){"after step 1: weights of stage 1, on rank 1, are not finite; the training has diverged",
                              "wrote /tmp/session-weights.", NULL});
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_size, 0); /* unchanged */
    assert_int_equal(unlink(diverged), 0);
    assert_int_equal(unlink(path), 0);
}

TEST(test_deadline)
{
    const Passes passes = {
        .forward = slow_forward, .backward_input = empty_backward, .backward_weight = empty_backward};
    Setting setting = {.ranks = 2,
                       .pipes = 1,
                       .microbatches = 1,
                       .passes = &passes,
                       .arguments = {"--steps=1", "--deadline=0.2", "--model=mlp"}};
    expect_failure(&setting,
                   (const char *const[]){"no rank has made progress for 0.2 s (--deadline): rank 0 at instruction",
                                         "pipeline.dps:20", "rank 1 at instruction", NULL});
    /* The reference has one rank, so no other rank waits for it; the deadline must end it all the same. */
    setting.reference = true;
    expect_failure(&setting,
                   (const char *const[]){"no rank has made progress for 0.2 s (--deadline): rank 0 at instruction 1 (F",
                                         "pipeline.dps:10", NULL});
    setting.arguments[1] = "--deadline=0";
    Outcome patient = run_well(&setting);
    release(&patient);
}

/* A message takes hours over the imitated network: the deadline ends the run. */
TEST(test_slow_network)
{
    const Passes passes = {
        .forward = empty_forward, .backward_input = empty_backward, .backward_weight = empty_backward};
    const Setting setting = {.ranks = 2,
                             .pipes = 1,
                             .microbatches = 1,
                             .passes = &passes,
                             .arguments = {"--steps=1", "--deadline=0.2", "--model=mlp", "--link=bandwidth=1"}};
    expect_failure(&setting,
                   (const char *const[]){"no rank has made progress for 0.2 s (--deadline): rank 0 at instruction",
                                         "rank 1 at instruction", NULL});
}

TEST(test_long_pass)
{
    const Passes passes = {
        .forward = long_forward, .backward_input = empty_backward, .backward_weight = empty_backward};
    const Setting setting = {.ranks = 2,
                             .pipes = 1,
                             .microbatches = 1,
                             .passes = &passes,
                             .arguments = {"--steps=1", "--deadline=1", "--model=mlp"}};
    Outcome outcome = run_well(&setting);
    assert_true(outcome.seconds > 3);
    release(&outcome);
}

/* --- files --- */

static char *read_file(Arena *arena, const char *path, size_t *size)
{
    char **bytes = arena_allocate(arena, sizeof *bytes);
    Error error;
    assert_int_equal(file_read(path, arena, bytes, size, &error), STATUS_OK);
    return *bytes;
}

TEST(test_files)
{
    Arena arena = {0};
    char folder[] = "/tmp/session.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *weights = arena_format(&arena, "%s/weights", folder), *trace = arena_format(&arena, "%s/trace", folder);
    Setting setting = {
        .ranks = 3, .pipes = 1, .microbatches = 2, .arguments = {"--steps=3", "--save", weights, "--trace", trace}};
    Outcome outcome = run_well(&setting);
    release(&outcome);
    size_t size, again;
    const char *first = read_file(&arena, weights, &size);
    const char *head_end = strstr(first, "\n\n");
    assert_non_null(head_end);
    unsigned long long parameters = 0;
    sscanf(strstr(first, "\nparameters ") + 1, "parameters %llu", &parameters);
    assert_true(parameters > 0);
    assert_int_equal(size, (size_t)(head_end + 2 - first) + parameters * sizeof(float) + sizeof(uint32_t));

    const char *events = read_file(&arena, trace, &again);
    assert_int_equal(strncmp(events, "{\"displayTimeUnit\"", 18), 0);
    int instructions = 0, components = 0;
    for (const char *next = events; (next = strstr(next, "\"ph\":\"X\"")); next++)
        ++*(strstr(next, "\"tid\":")[6] == '5' ? &components : &instructions);
    /* steps * (passes, messages and waits of ranks 0, 1 and 2; NORM and UPDATE of each rank) */
    assert_int_equal(instructions, 3 * (12 + 20 + 12 + 3 * 2));
    assert_true(components > 0);
    assert_non_null(strstr(events, "\"name\":\"rank 2\""));

    /* The same training again writes the same file of weights. A training of one step and its reference write files of
       equal size with the same head. */
    outcome = run_well(&setting);
    release(&outcome);
    assert_memory_equal(read_file(&arena, weights, &again), first, size);
    setting.arguments[0] = "--steps=1";
    outcome = run_well(&setting);
    release(&outcome);
    first = read_file(&arena, weights, &size);
    setting.reference = true;
    outcome = run_well(&setting);
    release(&outcome);
    const char *reference = read_file(&arena, weights, &again);
    assert_int_equal(again, size);
    /* the head of the file does not depend on the schedule */
    assert_memory_equal(reference, first, (size_t)(strstr(first, "\n\n") - first));
    unlink(weights);
    unlink(trace);
    rmdir(folder);
    arena_free(&arena);
}

/* A file of weights cannot be written. If it cannot be opened, for example because its folder does not exist, this is
   reported before the training. If a write fails, for example because the disk is full, this is reported at the end. */
TEST(test_unwritable)
{
    Setting setting = {
        .ranks = 2, .pipes = 1, .microbatches = 2, .arguments = {"--steps=2", "--save", "/no/such/folder/weights"}};
    Outcome outcome = run(&setting);
    assert_int_equal(outcome.status, STATUS_RUN_FAILED);
    assert_non_null(strstr(outcome.error.text, "/no/such/folder/weights"));
    assert_int_equal(outcome.steps, 0);
    release(&outcome);
    setting.arguments[2] = "/dev/full";
    outcome = run(&setting);
    assert_int_equal(outcome.status, STATUS_RUN_FAILED);
    assert_non_null(strstr(outcome.error.text, "/dev/full"));
    assert_int_equal(outcome.steps, 2);
    release(&outcome);
}

int main(void) { return test_program("session", NULL, NULL); }
