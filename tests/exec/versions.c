/* Asynchronous training follows the published recurrence. dprun's trace names the version of the weights that each F
   and each B uses. A plain simulation trains the same model, one microbatch after the other, with all versions of all
   weights in memory and without a program. Its losses equal, to the bit, those of dprun with and without
   --reference. */

#include "tests/exec/run.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICROBATCHES_MAX = 32, STAGES_MAX = 8, RANKS_MAX = 8, COPIES_MAX = 4, STEPS = 3 };

typedef struct Losses {
    double of[STEPS][MICROBATCHES_MAX];
    uint32_t microbatches;
    double first, last; /* mean losses of the first and the last step */
} Losses;

typedef struct Simulation Simulation;

/* The version of a stage's weights that microbatch m (counted from 0) uses by a published rule. */
typedef uint32_t Rule(const Simulation *x, uint32_t stage, uint32_t m);

/* --- the simulation --- */

typedef struct SimulatedStage {
    Stage *stage;
    const StageSizes *sizes;
    void *versions[MICROBATCHES_MAX + 1], *gradients[COPIES_MAX], *moment1, *moment2; /* gradients: one per copy */
    void *y, *dx, *context, *stash, *gradient, *workspace;
    uint32_t newest, gathered;
    uint64_t updates;
} SimulatedStage;

struct Simulation {
    Device *device;
    Error error;
    ModelConfig config;
    Dataset *dataset;
    uint32_t stages, microbatches;
    uint32_t group; /* the number of microbatches of an update, on stages that have one copy */
    /* the first `shared` stages have `copies` copies each; an update takes one microbatch of each copy */
    uint32_t shared, copies;
    /* true: the copies of a stage are in two pipes; false: they are in one pipe and take its microbatches in turn */
    bool two_pipes;
    Rule *rule;
    SimulatedStage of[STAGES_MAX];
    void *inputs, *targets;
};

/* --- the rules --- */

static uint32_t copies_of(const Simulation *x, uint32_t stage) { return stage < x->shared ? x->copies : 1; }

/* 1F1B: the number of microbatches that a stage (or one copy of it) has in flight when its next one arrives. On the
   first stage this is the paper's NOAM less 1. */
static uint32_t in_flight(const Simulation *x, uint32_t stage)
{
    const uint32_t ranks = x->stages + x->shared * (x->copies - 1);
    const uint32_t first = stage < x->shared ? stage * x->copies : ranks - (x->stages - stage);
    return (ranks - 1 - first) / copies_of(x, stage);
}

/* Weight stashing (SOSP 2019, section 3.3): the newest version that the stage has when microbatch m arrives at it. */
static uint32_t stashed(const Simulation *x, uint32_t stage, uint32_t m)
{
    const uint32_t round = m / copies_of(x, stage), ahead = in_flight(x, stage);
    return round > ahead ? round - ahead : 0;
}

/* Vertical sync (the same section): the version that the first stage uses. */
static uint32_t synced(const Simulation *x, uint32_t stage, uint32_t m)
{
    (void)stage;
    return stashed(x, 0, m);
}

/* Double buffering (ICML 2021, section 3.1). The paper's rule: input k, counted from 1, uses version
   max(floor((k-1)/m)-1, 0), where an update takes m microbatches (here `group`). */
static uint32_t buffered(const Simulation *x, uint32_t stage, uint32_t m)
{
    (void)stage;
    const uint32_t k = m + 1;
    return (k - 1) / x->group > 0 ? (k - 1) / x->group - 1 : 0;
}

/* Two pipes: in each pipe one microbatch is in flight when the next one arrives, so microbatch k of a pipe uses version
   max(k-1, 0). */
static uint32_t in_both_pipes(const Simulation *x, uint32_t stage, uint32_t m)
{
    (void)stage;
    const uint32_t round = m % (x->microbatches / 2);
    return round > 0 ? round - 1 : 0;
}

/* --- the run --- */

static void check(Simulation *x, Status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", x->error.text);
}

static void *memory(Simulation *x, size_t elements)
{
    void *made;
    check(x, x->device->run->allocate(x->device, elements * x->device->run->size[COMPUTE_TYPE], &made, &x->error));
    return made;
}

/* The weights of a version as the stage expects them. The CPU has one type of numbers, so passes and the optimizer
   share the weights. */
static StageWeights weights_of(const SimulatedStage *stage, uint32_t version)
{
    void *const parameters = stage->versions[version];
    return (StageWeights){.master_weights = parameters,
                          .parameters = parameters,
                          .gradients = stage->gradients[0],
                          .moment1 = stage->moment1,
                          .moment2 = stage->moment2};
}

static void open_simulation(Simulation *x)
{
    check(x, device_open("cpu", 0, &x->device, &x->error));
    check(x, model_config_check(&x->config, x->stages, &x->error));
    check(x, dataset_open(&x->config, NULL, &x->dataset, &x->error));
    for (uint32_t s = 0; s < x->stages; s++) {
        SimulatedStage *stage = &x->of[s];
        check(x, stage_open(&x->config, x->device, s, x->stages, 1, &stage->stage, &x->error));
        const StageSizes *sizes = stage->sizes = stage_sizes(stage->stage);
        for (uint32_t v = 0; v <= x->microbatches; v++)
            stage->versions[v] = memory(x, sizes->parameters);
        for (uint32_t k = 0; k < copies_of(x, s); k++)
            stage->gradients[k] = memory(x, sizes->parameters);
        stage->moment1 = memory(x, sizes->parameters);
        stage->moment2 = memory(x, sizes->parameters);
        stage->y = memory(x, sizes->message);
        stage->dx = memory(x, sizes->message);
        stage->context = memory(x, sizes->context);
        stage->stash = memory(x, sizes->stash);
        stage->gradient = memory(x, sizes->gradient);
        stage->workspace = memory(x, sizes->workspace);
        const StageWeights weights = weights_of(stage, 0);
        check(x, stage_initialize(stage->stage, &weights, &x->error));
    }
    x->inputs = malloc(x->of[0].sizes->inputs);
    x->targets = malloc(x->of[x->stages - 1].sizes->targets);
}

static void close_simulation(Simulation *x)
{
    for (uint32_t s = 0; s < x->stages; s++) {
        SimulatedStage *stage = &x->of[s];
        void *const all[] = {stage->moment1, stage->moment2, stage->y,        stage->dx,
                             stage->context, stage->stash,   stage->gradient, stage->workspace};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            x->device->run->deallocate(x->device, all[i]);
        for (uint32_t v = 0; v <= x->microbatches; v++)
            x->device->run->deallocate(x->device, stage->versions[v]);
        for (uint32_t k = 0; k < copies_of(x, s); k++)
            x->device->run->deallocate(x->device, stage->gradients[k]);
        stage_close(stage->stage);
    }
    dataset_close(x->dataset);
    device_close(x->device);
    free(x->inputs);
    free(x->targets);
}

static PassBuffers buffers_of(const Simulation *x, uint32_t s, uint32_t m, double *loss)
{
    const SimulatedStage *stage = &x->of[s];
    const bool first = s == 0, last = s + 1 == x->stages;
    const uint32_t copy = x->two_pipes ? m / (x->microbatches / 2) : m % copies_of(x, s);
    return (PassBuffers){
        .parameters = stage->versions[x->rule(x, s, m)],
        .parameter_gradients = stage->gradients[copy],
        .x = first ? NULL : x->of[s - 1].y,
        .y = last ? NULL : stage->y,
        .dx = first ? NULL : stage->dx,
        .dy = last ? NULL : x->of[s + 1].dx,
        .context = stage->context,
        .stash = stage->stash,
        .gradient = stage->gradient,
        .workspace = stage->workspace,
        .inputs = first ? x->inputs : NULL,
        .targets = last ? x->targets : NULL,
        .loss = last ? loss : NULL,
    };
}

/* Adds the gradients of copies 1, 2, ... in this order to the gradient of copy 0, and sets those of copies 1, 2, ... to
   0. */
static void sum_copies(const SimulatedStage *stage, uint32_t copies)
{
    float *sum = stage->gradients[0];
    for (uint32_t k = 1; k < copies; k++) {
        float *other = stage->gradients[k];
        for (size_t i = 0; i < stage->sizes->parameters; i++)
            sum[i] += other[i];
        memset(other, 0, stage->sizes->parameters * sizeof *other);
    }
}

/* One update: copies the newest version, and lets the optimizer change the copy by the mean gradient. If clip_norm is
   above 0, it clips the gradient by the norm of this stage alone. */
static void update(Simulation *x, SimulatedStage *stage, uint32_t copies)
{
    sum_copies(stage, copies);
    void *const before = stage->versions[stage->newest++];
    const double scale = 1.0 / stage->gathered, limit = x->config.clip_norm;
    double squares;
    const StageWeights weights = weights_of(stage, stage->newest);
    check(x, stage_gradient_norm(stage->stage, &weights, &squares, &x->error));
    const double norm = scale * sqrt(squares);
    check(x, x->device->run->copy(x->device, stage->sizes->parameters * x->device->run->size[COMPUTE_TYPE], before,
                                  weights.parameters, &x->error));
    check(x, stage_update(stage->stage, &weights, ++stage->updates,
                          limit > 0 && norm > limit ? scale * limit / norm : scale, &x->error));
    stage->gathered = 0;
}

static void simulate_step(Simulation *x, uint64_t step, double *losses)
{
    for (uint32_t i = 0; i < x->microbatches; i++) {
        const uint32_t m = x->two_pipes ? i / 2 + i % 2 * (x->microbatches / 2) : i;
        dataset_microbatch(x->dataset, step, m, x->inputs, x->targets);
        for (uint32_t s = 0; s < x->stages; s++) {
            const PassBuffers buffers = buffers_of(x, s, m, &losses[m]);
            assert_true(x->rule(x, s, m) <= x->of[s].newest);
            check(x, stage_forward(x->of[s].stage, &buffers, &x->error));
        }
        for (uint32_t s = x->stages; s-- > 0;) {
            const PassBuffers buffers = buffers_of(x, s, m, NULL);
            check(x, stage_backward_input(x->of[s].stage, &buffers, &x->error));
            check(x, stage_backward_weight(x->of[s].stage, &buffers, &x->error));
            const uint32_t copies = copies_of(x, s);
            if (++x->of[s].gathered == (copies > 1 ? copies : x->group) || i + 1 == x->microbatches)
                update(x, &x->of[s], copies);
        }
    }
    for (uint32_t s = 0; s < x->stages; s++) { /* the newest version is version 0 of the next step */
        SimulatedStage *stage = &x->of[s];
        void *const newest = stage->versions[stage->newest];
        stage->versions[stage->newest] = stage->versions[0];
        stage->versions[0] = newest;
        stage->newest = 0;
    }
}

/* --- dprun --- */

static void on_step(void *context, const StepReport *report)
{
    Losses *losses = context;
    memcpy(losses->of[report->step - 1], report->losses, losses->microbatches * sizeof *report->losses);
    if (report->step == 1)
        losses->first = report->loss;
    losses->last = report->loss;
}

/* Trains with dprun, which writes its trace to the path `trace`. Writes the losses to `losses` and the model's settings
   to `config`. */
static void train(const char *path, const char *model, const char *clip, const char *trace, bool reference,
                  Losses *losses, ModelConfig *config)
{
    char *arguments[] = {"dprun",
                         "--model",
                         (char *)model,
                         "--set",
                         "hidden=16",
                         "--set",
                         "sequence=8",
                         "--set",
                         "heads=2",
                         "--set",
                         "microbatch_size=2",
                         "--set",
                         (char *)clip,
                         "--set",
                         "learning_rate=0.01",
                         "--steps",
                         "3",
                         "--deadline",
                         "60",
                         "--trace",
                         (char *)trace,
                         reference ? "--reference" : "--transport=local",
                         (char *)path,
                         NULL};
    Run run;
    run_load(&run, arguments);
    *config = run.line.run.model;
    losses->microbatches = run.loaded.program->microbatches;
    assert_true(run.loaded.program->asynchronous && losses->microbatches <= MICROBATCHES_MAX);
    run_to_end(&run, &(SessionHooks){.observer = {.context = losses, .step = on_step}});
}

/* Checks that the trace has every F and B of every step with the version of the rule, and that in each step the Us of
   each copy make the versions 1, 2, ... */
static void check_trace(const char *path, const Simulation *x)
{
    FILE *stream = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    uint32_t passes = 0, updates[RANKS_MAX][STAGES_MAX] = {{0}};
    assert_non_null(stream);
    while (getline(&line, &size, stream) > 0) {
        const char *pass = strstr(line, "\"pass\":\""), *version = strstr(line, "\"version\":"),
                   *process = strstr(line, "\"pid\":");
        unsigned pipe = 0, stage, number, used, rank;
        char kind;
        if (!pass || strstr(line, "\"cat\":\"component\"")) /* no instruction */
            continue;
        assert_non_null(version ? version : strstr(line, "W"));
        if (!version) /* W needs no weights */
            continue;
        pass += strlen("\"pass\":\"");
        if (sscanf(pass, "p%u:", &pipe) == 1)
            pass = strchr(pass, ':') + 1;
        assert_int_equal(sscanf(pass, "%u%c%u", &stage, &kind, &number), 3);
        assert_int_equal(sscanf(version, "\"version\":%u", &used), 1);
        assert_int_equal(sscanf(process, "\"pid\":%u", &rank), 1);
        if (kind == 'U') {
            const uint32_t group = copies_of(x, stage) > 1 ? copies_of(x, stage) : x->group;
            const uint32_t each = (x->microbatches + group - 1) / group;
            assert_int_equal(used, updates[rank][stage]++ % each + 1);
            assert_int_equal(number, used);
            continue;
        }
        if (used != x->rule(x, stage, number + pipe * (x->microbatches / 2)))
            fail_msg("the trace has version %u: %s", used, line);
        passes++;
    }
    free(line);
    fclose(stream);
    assert_int_equal(passes, 2 * STEPS * x->stages * x->microbatches);
}

/* Compares dprun with the simulation. `schedule`: arguments of dpc; `clip`: an argument of --set; `x`: what to
   simulate. */
static void compare(const char *schedule, Simulation x, const char *model, const char *clip)
{
    char folder[] = "/tmp/versions.XXXXXX", command[1024], program[64], trace[64];
    const char *build = getenv("BUILD");
    assert_non_null(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    snprintf(trace, sizeof trace, "%s/trace", folder);
    snprintf(command, sizeof command, "%s/dpc --ranks %u --microbatches %u %s -o %s", build ? build : "build",
             x.two_pipes ? x.stages : x.stages + x.shared * (x.copies - 1), x.microbatches, schedule, program);
    if (system(command) != 0)
        fail_msg("%s", command);
    Losses pipelined = {0}, reference = {0};
    train(program, model, clip, trace, false, &pipelined, &x.config);
    check_trace(trace, &x);
    train(program, model, clip, trace, true, &reference, &x.config);
    check_trace(trace, &x);
    open_simulation(&x);
    for (uint32_t step = 0; step < STEPS; step++) {
        double losses[MICROBATCHES_MAX];
        simulate_step(&x, step + 1, losses);
        for (uint32_t m = 0; m < x.microbatches; m++)
            if (memcmp(&losses[m], &pipelined.of[step][m], sizeof *losses) != 0 ||
                memcmp(&losses[m], &reference.of[step][m], sizeof *losses) != 0)
                fail_msg("%s, step %u, microbatch %u: the recurrence has loss %a, dprun %a, on one rank %a", command,
                         step + 1, m, losses[m], pipelined.of[step][m], reference.of[step][m]);
    }
    if (strcmp(model, "gpt") == 0) /* mlp trains on random data: its loss does not have to fall */
        assert_true(pipelined.last < pipelined.first);
    close_simulation(&x);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static const char *const models[] = {"gpt", "mlp"};
static const char *const clips[] = {"clip_norm=0", "clip_norm=0.1"};

TEST(pipedream_is_weight_stashing)
{
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        for (uint32_t microbatches = 7; microbatches <= 12; microbatches += 5)
            compare("schedules/pipedream.dps",
                    (Simulation){.stages = ranks, .microbatches = microbatches, .group = 1, .rule = stashed},
                    models[ranks % 2], clips[ranks / 2 % 2]);
}

TEST(pipedream_2bw_is_double_buffering)
{
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        for (uint32_t group = ranks; group <= ranks + 2; group += 2) {
            char schedule[64];
            snprintf(schedule, sizeof schedule, "-D G=%u schedules/pipedream-2bw.dps", group);
            compare(schedule,
                    (Simulation){.stages = ranks, .microbatches = 4 * group + 1, .group = group, .rule = buffered},
                    models[ranks % 2], clips[ranks / 2 % 2]);
        }
}

static void compare_text(const char *text, Simulation x, const char *model, const char *clip)
{
    char path[] = "/tmp/schedule.XXXXXX.dps";
    FILE *stream = fdopen(mkstemps(path, 4), "w");
    fputs(text, stream);
    fclose(stream);
    compare(path, x, model, clip);
    remove(path);
}

TEST(a_pipe_names_vertical_sync)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks++)
        compare_text("schedule vertical; ranks P = 4; microbatches M = 8;\n"
                     "pipe a: P stages, stage s on s, M microbatches, microbatch m on version max(m-P+1, 0);\n"
                     "let w = min(P-1-r, M);\n"
                     "nF : w; nFIWU : M-w; nIWU : w;\n",
                     (Simulation){.stages = ranks, .microbatches = 10, .group = 1, .rule = synced}, models[ranks % 2],
                     clips[0]);
}

/* 1F1B-RR: the replicas of a stage take the microbatches in turn, and make each version together. */
TEST(replicas_update_together)
{
    for (uint32_t copies = 2; copies <= 3; copies++)
        for (uint32_t shared = 1; shared <= 2; shared++)
            for (uint32_t single = 0; single <= 2; single += 2) {
                char schedule[80];
                snprintf(schedule, sizeof schedule, "-D replicas=%u -D replicated=%u schedules/pipedream-rr.dps",
                         copies, shared);
                compare(schedule,
                        (Simulation){.stages = shared + single,
                                     .shared = shared,
                                     .copies = copies,
                                     .microbatches = 10 + single,
                                     .group = 1,
                                     .rule = stashed},
                        models[copies % 2], clips[shared % 2]);
            }
}

TEST(copies_in_two_pipes_update_together)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks += 2)
        compare_text("schedule both; ranks P = 4; microbatches M = 8;\n"
                     "pipe a: P stages, stage s on s, M/2 microbatches;\n"
                     "pipe b: P stages, stage s on P-1-s, M/2 microbatches;\n"
                     "nF0F1;\n"
                     "repeat k < M/2 {\n"
                     "    if k+1 < M/2 { nF0F1; }\n"
                     "    nB0B1;\n"
                     "    if r < P/2 { nU0U1; } else { nU1U0; }\n"
                     "}\n",
                     (Simulation){.stages = ranks,
                                  .shared = ranks,
                                  .copies = 2,
                                  .two_pipes = true,
                                  .microbatches = 10,
                                  .rule = in_both_pipes},
                     models[ranks / 2 % 2], clips[ranks / 2 % 2]);
}

int main(void) { return test_program("versions", NULL, NULL); }
