/* Compares F, I and W of every component and of whole stages with central differences, in double on the oracle device.
   Outputs, and memory in which passes save tensors for later passes, are NaN before, so that a read of unwritten memory
   is noticed. */

#include "tests/model/harness.h"

#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

enum { ELEMENTS_A_TENSOR = 60 };
static const double step_width = 1e-5;

static Device *oracle;

/* What a test checks: a stage, or one component as a stage. */
typedef struct Subject {
    const char *name;
    Stage *stage;
    Slots *slots;
    const StageSizes *sizes;
    double loss_scale;
} Subject;

/* The sum of the balance losses of the stage's routers, as F saves them for W. */
static double balance_loss(const Subject *subject)
{
    double sum = 0;
    for (size_t p = 0; p < subject->stage->part_count; p++) {
        const Part *part = &subject->stage->parts[p];
        const PassAddresses at = {.stash = {1, part->stash * sizeof(double)}};
        if (part->component.kind == &component_router)
            sum += *(const double *)(const void *)((const char *)subject->slots->buffers.stash +
                                                   experts_frame(&part->component, &at).balance.offset);
    }
    return sum;
}

/* The scalar function whose gradient the passes compute: the loss (at a stage without loss: the sum of y * dy), plus
   the balance losses. The losses are multiplied by loss_scale. */
static double objective(const Subject *subject)
{
    poison_slots(oracle, subject->sizes, subject->slots);
    OK(stage_forward(subject->stage, &subject->slots->buffers, error));
    double sum = subject->loss_scale * balance_loss(subject);
    if (subject->slots->buffers.loss)
        return sum + subject->loss_scale * subject->slots->loss;
    const double *y = subject->slots->y, *dy = subject->slots->dy;
    for (size_t i = 0; i < subject->sizes->message; i++)
        sum += y[i] * dy[i];
    return sum;
}

static void check_tensor(const Subject *subject, const char *tensor, double *values, const double *gradient,
                         size_t count)
{
    const size_t stride = count / ELEMENTS_A_TENSOR + 1;
    double largest = 1e-3;
    for (size_t i = 0; i < count; i++) {
        if (isnan(gradient[i]))
            fail_msg("%s: gradient %zu of %s is not written", subject->name, i, tensor);
        largest = fmax(largest, fabs(gradient[i]));
    }
    for (size_t i = random_bits(11, count) % stride; i < count; i += stride) {
        const double value = values[i];
        values[i] = value + step_width;
        const double above = objective(subject);
        values[i] = value - step_width;
        const double below = objective(subject);
        values[i] = value;
        const double expected = (above - below) / (2 * step_width);
        if (!(fabs(gradient[i] - expected) <= 1e-7 * largest))
            fail_msg("%s: gradient %zu of %s is %.12g, should be %.12g", subject->name, i, tensor, gradient[i],
                     expected);
    }
}

/* Checks what W has counted: the rows of all experts together, and the sum of the balance losses. */
static void check_tallies(const Subject *subject, const double *gradients)
{
    double balance = 0, rows = 0;
    for (size_t p = 0; p < subject->stage->part_count; p++) {
        const Part *part = &subject->stage->parts[p];
        if (part->component.kind != &component_router)
            continue;
        const double *loads = gradients + part->parameters + component_offset(&part->component, ROUTER_BIAS);
        balance += gradients[part->parameters + component_offset(&part->component, ROUTER_BALANCE)];
        for (size_t e = 0; e < part->component.config.experts; e++)
            rows += loads[e];
        rows -= (double)(part->component.rows * part->component.config.experts_per_token);
    }
    assert_true(fabs(balance - balance_loss(subject)) < 1e-12 && fabs(rows) < 1e-9);
}

static void check_gradients(const Subject *subject)
{
    PassBuffers *buffers = &subject->slots->buffers;
    const size_t count = subject->sizes->parameters;
    double *before = elements(oracle, count), *gradients = buffers->parameter_gradients;
    randomize(oracle, gradients, count, 3, 1); /* W adds to the gradients */
    memcpy(before, gradients, count * sizeof *before);
    objective(subject);
    OK(stage_backward_input(subject->stage, buffers, error));
    assert_memory_equal(gradients, before, count * sizeof *before); /* I computes no weight gradient */
    poison(oracle, buffers->context, subject->sizes->context);      /* W must not read what is saved for I only */
    poison(oracle, buffers->workspace, subject->sizes->workspace);  /* W must not read what I leaves in the workspace */
    OK(stage_backward_weight(subject->stage, buffers, error));
    for (size_t i = 0; i < count; i++)
        gradients[i] -= before[i];
    check_tallies(subject, gradients);
    if (buffers->dx) {
        double *dx = elements(oracle, subject->sizes->message);
        memcpy(dx, buffers->dx, subject->sizes->message * sizeof *dx);
        check_tensor(subject, "x", subject->slots->x, dx, subject->sizes->message);
        oracle->run->deallocate(oracle, dx);
    }
    for (size_t p = 0; p < subject->stage->part_count; p++) {
        const Part *part = &subject->stage->parts[p];
        for (size_t i = 0; i < part->component.parameter_count; i++) {
            if (part->component.tallies[i])
                continue;
            const size_t offset = part->parameters + component_offset(&part->component, i);
            check_tensor(subject, part->component.parameters[i].name, (double *)(uintptr_t)buffers->parameters + offset,
                         gradients + offset, part->component.parameters[i].elements);
        }
    }
    oracle->run->deallocate(oracle, before);
}

static void fill_data(const ModelConfig *config, const StageSizes *sizes, Slots *slots)
{
    for (size_t which = 0; which < 2; which++) {
        void *data = which ? slots->targets : slots->inputs;
        const size_t count = (which ? sizes->targets : sizes->inputs) / 4;
        for (size_t i = 0; data && i < count; i++) {
            if (model_reads_text(config))
                ((int32_t *)data)[i] = (int32_t)(random_bits(which, i) % config->vocabulary);
            else
                ((float *)data)[i] = random_normal(which, i);
        }
    }
}

/* Checks stage `number` of a model that is divided into `stages` stages. */
static void check_stage(const ModelConfig *config, const char *name, uint32_t number, uint32_t stages)
{
    Stage *stage;
    OK(stage_open(config, oracle, number, stages, 4, &stage, error));
    const StageWeights weights = weights_of(oracle, stage);
    const StageSizes *sizes = stage_sizes(stage);
    /* random values also for the biases, which are initially 0 */
    randomize(oracle, weights.parameters, sizes->parameters, 4, 0.5);
    Slots slots;
    make_slots(oracle, sizes, number == 0, number + 1 == stages, weights, &slots);
    fill_data(config, sizes, &slots);
    check_gradients(&(Subject){name, stage, &slots, sizes, 0.25});
    free_slots(oracle, &slots);
    free_weights(oracle, weights);
    stage_close(stage);
}

static const char *const small_gpt[] = {"hidden=6", "heads=2", "sequence=3", "microbatch_size=2", NULL};
static const char *const small_mlp[] = {"hidden=5", "sequence=3", "microbatch_size=2", NULL};

TEST(test_gpt_stages)
{
    const ModelConfig config = config_of("gpt", small_gpt, 3);
    check_stage(&config, "first stage of gpt", 0, 3);
    check_stage(&config, "inner stage of gpt", 1, 3);
    check_stage(&config, "last stage of gpt", 2, 3);
}

TEST(test_whole_gpt)
{
    ModelConfig config = config_of("gpt", small_gpt, 2);
    check_stage(&config, "gpt on one rank", 0, 1);
}

TEST(test_mlp_stages)
{
    ModelConfig config = config_of("mlp", small_mlp, 4);
    check_stage(&config, "first stage of mlp", 0, 2);
    check_stage(&config, "last stage of mlp", 1, 2);
    check_stage(&config, "mlp on one rank", 0, 1);
}

/* Layers with experts: the routers sigmoid and softmax, groups of experts, dense layers among them, and edge cases. */
TEST(test_moe_stages)
{
    static const char *const settings[][8] = {
        {"experts=8", "experts_per_token=3", "expert_groups=4", "groups_per_token=2", "gate_factor=2.5"},
        {"experts=5", "experts_per_token=2", "router=softmax"},
        {"experts=4", "experts_per_token=4", "shared_experts=0"}, /* every expert */
        {"experts=1", "experts_per_token=1", "shared_experts=2"},
        {"experts=6", "experts_per_token=1", "sequence=1", "microbatch_size=1"}, /* one token */
        {"experts=16", "dense_layers=2", "layers=5"},
        {"experts=7", "expert_interval=2", "layers=6"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *all[16] = {"hidden=6",          "heads=2",         "sequence=3",
                               "microbatch_size=2", "expert_hidden=5", "balance_loss=0.5"};
        memcpy(all + 6, settings[i], sizeof settings[i]);
        const ModelConfig config = config_of("moe", all, 3);
        for (uint32_t stage = 0; stage < 3; stage++)
            check_stage(&config, settings[i][0], stage, 3);
        check_stage(&config, settings[i][0], 0, 1);
    }
}

/* Checks one component as a stage. */
static void check_component(const ComponentKind *kind, const char *model, const char *const *assignments)
{
    const ModelConfig config = config_of(model, assignments, 1);
    Stage *stage = calloc(1, sizeof *stage + sizeof *stage->parts);
    const size_t rows = (size_t)config.microbatch_size * config.sequence;
    const bool first = kind == &component_embedding || kind == &component_rows;
    const bool last = kind == &component_head || kind == &component_squared_error;
    stage->config = config;
    stage->device = oracle;
    stage->part_count = 1;
    Component *component = &stage->parts[0].component;
    *component = (Component){.kind = kind, .config = config, .device = oracle, .loss_scale = 0.25, .rows = rows};
    OK(kind->open(component, error));
    stage->sizes = (StageSizes){
        .parameters = component_offset(component, component->parameter_count),
        .message = rows * config.hidden,
        .context = component->context,
        .stash = component->stash,
        .gradient = component->gradient,
        .workspace = component->workspace,
        .inputs = first ? component->data_bytes : 0,
        .targets = last ? component->data_bytes : 0,
    };
    stage->first = first;
    OK(stage_list_operations(stage, error));
    const StageWeights weights = weights_of(oracle, stage);
    randomize(oracle, weights.parameters, stage->sizes.parameters, 4, 0.5);
    Slots slots;
    make_slots(oracle, &stage->sizes, first, last, weights, &slots);
    fill_data(&config, &stage->sizes, &slots);
    check_gradients(&(Subject){part_names[kind->part], stage, &slots, &stage->sizes, 0.25});
    /* a stage that computes no dx gives the same weight gradients */
    if (slots.dx) {
        double *expected = elements(oracle, stage->sizes.parameters), *got = weights.gradients;
        for (int with = 1; with >= 0; with--) {
            memset(got, 0, stage->sizes.parameters * sizeof *got);
            slots.buffers.dx = with ? slots.dx : NULL;
            stage->first = !with;
            OK(stage_list_operations(stage, error));
            objective(&(Subject){part_names[kind->part], stage, &slots, &stage->sizes, 0.25});
            OK(stage_backward_input(stage, &slots.buffers, error));
            OK(stage_backward_weight(stage, &slots.buffers, error));
            if (with)
                memcpy(expected, got, stage->sizes.parameters * sizeof *got);
        }
        assert_memory_equal(got, expected, stage->sizes.parameters * sizeof *got);
        oracle->run->deallocate(oracle, expected);
    }
    free_slots(oracle, &slots);
    free_weights(oracle, weights);
    stage_close(stage);
}

TEST(test_components)
{
    check_component(&component_embedding, "gpt", small_gpt);
    check_component(&component_attention, "gpt", small_gpt);
    check_component(&component_mlp, "gpt", small_gpt);
    check_component(&component_head, "gpt", small_gpt);
    check_component(&component_rows, "mlp", small_mlp);
    check_component(&component_perceptron, "mlp", small_mlp);
    check_component(&component_squared_error, "mlp", small_mlp);
}

static int open_oracle(void **state)
{
    (void)state;
    Error error;
    return (int)device_open("oracle", 0, &oracle, &error);
}

static int close_oracle(void **state)
{
    (void)state;
    device_close(oracle);
    return 0;
}

int main(void) { return test_program("gradients", open_oracle, close_oracle); }
