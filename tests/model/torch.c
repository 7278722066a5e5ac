/* Compares the second half of a layer with experts with PyTorch: routing, gates, experts, balance loss, the bias after
   a step, and all gradients, in double to 1e-12, the bias to 1e-7 (experts.py). Skipped without PyTorch (Debian:
   python3-torch). */

#include "tests/model/harness.h"

#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

#include <stdio.h>

static Device *oracle;
static char folder[] = "/tmp/experts.XXXXXX", path[100];
static const char *python; /* a Python with PyTorch; NULL: there is none */

static const ComponentKind *const block[] = {&component_router, &component_dispatch, &component_shared,
                                             &component_experts, &component_combine};
enum { PARTS = sizeof block / sizeof *block };
static const double loss_scale = 0.25;

static void write_doubles(FILE *file, const char *before, const char *name, const double *values, size_t count)
{
    fprintf(file, "%s%s", before, name);
    for (size_t i = 0; i < count; i++)
        fprintf(file, " %.17g", values[i]);
    putc('\n', file);
}

/* Opens a stage with the components of the second half of a layer with experts. */
static Stage *open_block(const ModelConfig *config)
{
    Stage *stage = calloc(1, sizeof *stage + PARTS * sizeof *stage->parts);
    assert_non_null(stage);
    stage->config = *config;
    stage->device = oracle;
    stage->part_count = PARTS;
    stage->counts = calloc(2 * config->experts, sizeof *stage->counts);
    for (size_t i = 0; i < PARTS; i++) {
        Component *component = &stage->parts[i].component;
        *component = (Component){.kind = block[i],
                                 .config = *config,
                                 .device = oracle,
                                 .loss_scale = loss_scale,
                                 .rows = (size_t)config->microbatch_size * config->sequence};
        OK(block[i]->open(component, error));
        stage->parts[i].parameters = stage->sizes.parameters;
        stage->sizes.parameters += component_offset(component, component->parameter_count);
    }
    const Component *first = &stage->parts[0].component;
    stage->sizes.message = first->rows * config->hidden;
    stage->sizes.context = first->context;
    stage->sizes.stash = first->stash;
    stage->sizes.gradient = first->gradient;
    OK(stage_list_operations(stage, error));
    return stage;
}

static void write_settings(FILE *file, const Stage *stage)
{
    const ModelConfig *c = &stage->config;
    fprintf(file,
            "tokens %zu\nhidden %u\nsequence %u\nexperts %u\nexperts_per_token %u\nexpert_hidden %u\n"
            "shared_experts %u\nexpert_groups %u\ngroups_per_token %u\nsoftmax %d\n",
            stage->parts[0].component.rows, c->hidden, c->sequence, c->experts, c->experts_per_token, c->expert_hidden,
            c->shared_experts, c->expert_groups, c->groups_per_token, c->router == SCORES_SOFTMAX);
    fprintf(file, "gate_factor %.17g\nbalance_loss %.17g\nbias_rate %.17g\nloss_scale %.17g\n", c->gate_factor,
            c->balance_loss, c->bias_rate, loss_scale);
}

/* Writes all parameters. gradients = true: writes gradients instead, except where W counts tallies in place of a
   gradient. */
static void write_parameters(FILE *file, const char *before, const Stage *stage, const double *values, bool gradients)
{
    for (size_t p = 0; p < PARTS; p++) {
        const Component *component = &stage->parts[p].component;
        for (size_t i = 0; i < component->parameter_count; i++)
            if (!gradients || !component->tallies[i])
                write_doubles(file, before, component->parameters[i].name,
                              values + stage->parts[p].parameters + component_offset(component, i),
                              component->parameters[i].elements);
    }
}

/* Writes the chosen experts, the gates and the balance loss, which F saves for I and W. */
static void write_frame(FILE *file, const Stage *stage, const PassBuffers *buffers)
{
    const Component *router = &stage->parts[0].component;
    const size_t routed = router->rows * router->config.experts_per_token;
    const ExpertsFrame frame = experts_frame(router, &(PassAddresses){0});
    const char *const context = buffers->context, *const stash = buffers->stash;
    const int32_t *chosen = (const int32_t *)(const void *)(context + frame.chosen.offset);
    fprintf(file, "got.chosen");
    for (size_t i = 0; i < routed; i++)
        fprintf(file, " %d", chosen[i]);
    putc('\n', file);
    write_doubles(file, "got.", "gates", (const double *)(const void *)(context + frame.gates.offset), routed);
    write_doubles(file, "got.", "balance", (const double *)(const void *)(stash + frame.balance.offset), 1);
}

/* Writes the loads of experts that W has counted, and the bias that an update computes from these loads. */
static void write_balance(FILE *file, Stage *stage, const StageWeights *weights)
{
    const Component *router = &stage->parts[0].component;
    const size_t offset = component_offset(router, ROUTER_BIAS), experts = router->config.experts;
    StageTallies tallies = {0};
    write_doubles(file, "got.", "loads", (const double *)weights->gradients + offset, experts);
    OK(stage_take_tallies(stage, weights, &tallies, error));
    OK(stage_update(stage, weights, 1, 1, error));
    write_doubles(file, "got.", "bias", (const double *)weights->master_weights + offset, experts);
}

static void compute(const ModelConfig *config)
{
    Stage *stage = open_block(config);
    const StageWeights weights = weights_of(oracle, stage);
    Slots slots;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    randomize(oracle, weights.parameters, stage->sizes.parameters, 4, 0.5);
    make_slots(oracle, &stage->sizes, false, false, weights, &slots);
    write_settings(file, stage);
    write_doubles(file, "", "x", slots.x, stage->sizes.message);
    write_doubles(file, "", "dy", slots.dy, stage->sizes.message);
    write_parameters(file, "", stage, weights.parameters, false);
    OK(stage_forward(stage, &slots.buffers, error));
    write_frame(file, stage, &slots.buffers);
    OK(stage_backward_input(stage, &slots.buffers, error));
    OK(stage_backward_weight(stage, &slots.buffers, error));
    write_doubles(file, "got.", "y", slots.y, stage->sizes.message);
    write_doubles(file, "got.", "x", slots.dx, stage->sizes.message);
    write_parameters(file, "got.", stage, weights.gradients, true);
    write_balance(file, stage, &weights);
    assert_int_equal(fclose(file), 0);
    free_slots(oracle, &slots);
    free_weights(oracle, weights);
    stage_close(stage);
}

TEST(experts_are_those_of_pytorch)
{
    static const char *const settings[][8] = {
        {"experts=8", "experts_per_token=3", "bias_rate=0.001"},
        {"experts=16", "experts_per_token=4", "expert_groups=4", "groups_per_token=2", "gate_factor=2.5"},
        {"experts=6", "experts_per_token=2", "router=softmax", "shared_experts=0"},
        {"experts=8", "experts_per_token=2", "router=softmax", "expert_groups=8", "groups_per_token=3"},
        {"experts=5", "experts_per_token=5", "shared_experts=2"},                /* every expert */
        {"experts=7", "experts_per_token=1", "sequence=1", "microbatch_size=1"}, /* one token */
        {"experts=64", "experts_per_token=2"},                                   /* some experts get no token */
        {"experts=1", "experts_per_token=1"},                                    /* all tokens go to one expert */
    };
    char command[9000];
    if (!python) {
        print_message("no PyTorch here: the experts are not compared with it (Debian: python3-torch)\n");
        skip();
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *all[16] = {"hidden=10",         "heads=2",         "sequence=6",
                               "microbatch_size=3", "expert_hidden=4", "balance_loss=0.5"};
        memcpy(all + 6, settings[i], sizeof settings[i]);
        const ModelConfig config = config_of("moe", all, 1);
        snprintf(path, sizeof path, "%s/%zu", folder, i);
        compute(&config);
    }
    snprintf(command, sizeof command, "%s tests/model/experts.py %s/*", python, folder);
    if (system(command) != 0)
        fail_msg("other numbers than PyTorch's");
}

static int begin(void **state)
{
    (void)state;
    static const char *const known[] = {"python3", "/usr/bin/python3"};
    Error error;
    char command[100];
    if (!mkdtemp(folder))
        return 1;
    for (size_t i = 0; i < 2 && !python; i++) {
        snprintf(command, sizeof command, "%s -c 'import torch' 2>/dev/null", known[i]);
        python = system(command) == 0 ? known[i] : NULL;
    }
    return (int)device_open("oracle", 0, &oracle, &error);
}

static int end(void **state)
{
    (void)state;
    char command[100];
    device_close(oracle);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void) { return test_program("torch", begin, end); }
