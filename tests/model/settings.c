/* Model files and assignments, starting weights, the optimizer's settings. */

#include "tests/model/harness.h"

#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

#include <stdio.h>

static char path[4096];

static int name_file(void **state)
{
    (void)state;
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/settings.model", build ? build : ".");
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    remove(path);
    return 0;
}

static Status load_text(const char *text, ModelConfig *config, Error *error)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return model_config_load(path, config, error);
}

TEST(test_built_in)
{
    ModelConfig config;
    OK(model_config_load("gpt", &config, error));
    assert_string_equal(model_name(&config), "gpt");
    assert_int_equal(config.vocabulary, 256);
    assert_int_equal(config.layers, 0);
    OK(model_config_check(&config, 8, error));
    assert_int_equal(config.layers, 8);
    OK(model_config_load("mlp", &config, error));
    assert_string_equal(model_name(&config), "mlp");
    OK(model_config_check(&config, 4, error));
}

TEST(test_file)
{
    ModelConfig config;
    OK(load_text(
        "# a comment\n\nmodel = mlp # another\n  hidden=48\r\nlearning_rate = 2.5e-3\nseed = 18446744073709551615\n",
        &config, error));
    assert_string_equal(model_name(&config), "mlp");
    assert_int_equal(config.hidden, 48);
    assert_true(config.learning_rate == 2.5e-3);
    assert_true(config.seed == UINT64_MAX);
    OK(load_text("heads = 3\nlayers = 12", &config, error)); /* the default model is gpt */
    assert_string_equal(model_name(&config), "gpt");
    assert_int_equal(config.heads, 3);
    assert_int_equal(config.layers, 12);
    OK(load_text("", &config, error));
    assert_string_equal(model_name(&config), "gpt");
}

static void assert_refused(const char *text, const char *message)
{
    ModelConfig config;
    Error failure;
    char expected[5000];
    assert_int_equal(load_text(text, &config, &failure), STATUS_BAD_INPUT);
    snprintf(expected, sizeof expected, "%s:%s", path, message);
    assert_string_equal(failure.text, expected);
}

TEST(test_file_errors)
{
    assert_refused("hidden = 8\nlearning_rat = 1\n", "2: no key 'learning_rat'; did you mean learning_rate?");
    assert_refused("\n\nbeta3 = 1", "3: no key 'beta3'; did you mean beta1?");
    assert_refused("hidden", "1: 'hidden' is not 'key = value'");
    assert_refused("hidden = ", "1: hidden = : it must be a whole number from 1 to 65536");
    assert_refused("hidden = 0", "1: hidden = 0: it must be a whole number from 1 to 65536");
    assert_refused("hidden = -1", "1: hidden = -1: it must be a whole number from 1 to 65536");
    assert_refused("hidden = 8x", "1: hidden = 8x: it must be a whole number from 1 to 65536");
    assert_refused("hidden = 99999999999999999999",
                   "1: hidden = 99999999999999999999: it must be a whole number from 1 to 65536");
    assert_refused("seed = 18446744073709551616",
                   "1: seed = 18446744073709551616: it must be a whole number below 2^64");
    assert_refused("beta1 = 1", "1: beta1 = 1: it must be a number from 0 to 0.9999999");
    assert_refused("learning_rate = nan", "1: learning_rate = nan: it must be a number from 0 to 1000000");
    assert_refused("learning_rate = 1e999", "1: learning_rate = 1e999: it must be a number from 0 to 1000000");
    assert_refused("router = top2", "1: router = top2: it must be sigmoid or softmax");
    assert_refused("hidden = 8\nmodel = mlp",
                   "2: 'model' must be the first key: it sets the defaults of the other keys");
    assert_refused("model = bert", "1: no model 'bert'; there are: gpt, mlp, moe");
    ModelConfig config;
    Error failure;
    assert_int_equal(model_config_load("no-such-model", &config, &failure), STATUS_BAD_INPUT);
    assert_non_null(strstr(failure.text, "no-such-model"));
    assert_non_null(strstr(failure.text, "gpt, mlp"));
    FILE *file = fopen(path, "wb");
    fwrite("hidden = 8\0", 1, 11, file);
    fclose(file);
    assert_int_equal(model_config_load(path, &config, &failure), STATUS_BAD_INPUT);
}

TEST(test_assignments)
{
    ModelConfig config;
    Error failure;
    OK(model_config_load("gpt", &config, error));
    OK(model_config_set(&config, "weight_decay=0.25", error));
    OK(model_config_set(&config, " clip_norm = 3 ", error));
    assert_true(config.weight_decay == 0.25 && config.clip_norm == 3);
    assert_int_equal(model_config_set(&config, "hiden=4", &failure), STATUS_BAD_USAGE);
    assert_string_equal(failure.text, "no key 'hiden'; did you mean hidden?");
    assert_int_equal(model_config_set(&config, "model = mlp", &failure), STATUS_BAD_USAGE);
    assert_non_null(strstr(failure.text, "--model mlp"));
    assert_int_equal(model_config_set(&config, "hidden=four", &failure), STATUS_BAD_USAGE);
    assert_int_equal(model_config_set(&config, "hidden", &failure), STATUS_BAD_USAGE);
}

TEST(test_check)
{
    static const struct {
        const char *assignment, *message;
    } cases[] = {
        {"heads=7", "heads = 7 does not divide hidden = 96"},
        {"vocabulary=255", "vocabulary = 255: it must be at least 256, one for each byte"},
        {"layers=3", "layers = 3: 4 stages need at least one layer each"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelConfig config;
        Error failure;
        OK(model_config_load("gpt", &config, error));
        OK(model_config_set(&config, "hidden=96", error));
        OK(model_config_set(&config, cases[i].assignment, error));
        assert_int_equal(model_config_check(&config, 4, &failure), STATUS_BAD_INPUT);
        assert_string_equal(failure.text, cases[i].message);
    }
    static const struct {
        const char *model, *assignments[4], *message;
    } of_experts[] = {
        {"moe", {"experts=6", "expert_groups=4"}, "expert_groups = 4 does not divide experts = 6"},
        {"moe", {"groups_per_token=2"}, "groups_per_token = 2, but there are only expert_groups = 1"},
        {"moe",
         {"experts=8", "expert_groups=4", "experts_per_token=3"},
         "experts_per_token = 3, but a token chooses among only 2 experts: 1 group of 2 experts"},
        {"moe", {"experts=1"}, "experts_per_token = 2, but a layer has 1 expert"},
        {"moe",
         {"sequence=65536", "microbatch_size=64", "experts=1024", "experts_per_token=1024"},
         "microbatch_size * sequence * experts_per_token is over 2147483647: make one of them smaller"},
        {"moe",
         {"experts=4096", "expert_hidden=65536", "hidden=65536"},
         "this model is too large: make experts, shared_experts, expert_hidden, hidden or layers smaller"},
        {"moe",
         {"experts=4096", "experts_per_token=4096", "expert_hidden=65536", "layers=140"},
         "a microbatch is too large: make microbatch_size, sequence or experts_per_token smaller"},
        {"moe",
         {"experts=2", "expert_groups=2"},
         "experts_per_token = 2, but a token chooses among only 1 expert: 1 group of 1 expert"},
        {"gpt", {"router=softmax"}, "router = softmax: model gpt has no experts; --model moe has"},
        {"mlp", {"bias_rate=0.25"}, "bias_rate = 0.25: model mlp has no experts; --model moe has"},
    };
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++) {
        ModelConfig config;
        Error failure;
        OK(model_config_load(of_experts[i].model, &config, error));
        for (size_t k = 0; k < 4 && of_experts[i].assignments[k]; k++)
            OK(model_config_set(&config, of_experts[i].assignments[k], error));
        assert_int_equal(model_config_check(&config, 4, &failure), STATUS_BAD_INPUT);
        assert_string_equal(failure.text, of_experts[i].message);
    }
    static const char *const huge[] = {"hidden=65536", "sequence=65536", "microbatch_size=2"};
    for (size_t model = 0; model < 2; model++) {
        ModelConfig config;
        Error failure;
        OK(model_config_load(model ? "mlp" : "gpt", &config, error));
        for (size_t i = 0; i < 3; i++)
            OK(model_config_set(&config, huge[i], error));
        assert_int_equal(model_config_check(&config, 1, &failure), STATUS_BAD_INPUT);
        assert_string_equal(failure.text,
                            "microbatch_size * sequence * hidden is 8589934592; it must be at most 4294967296: "
                            "make one of them smaller");
    }
    /* each value is within its own limit, but the sizes of the stages would overflow 64 bits */
    static const char *const deep[] = {"hidden=1", "heads=1", "sequence=65536", "microbatch_size=65536",
                                       "layers=1048576"};
    ModelConfig config;
    Error failure;
    OK(model_config_load("gpt", &config, error));
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        OK(model_config_set(&config, deep[i], error));
    assert_int_equal(model_config_check(&config, 1, &failure), STATUS_BAD_INPUT);
    assert_non_null(strstr(failure.text, "too large"));
}

/* Layers are distributed evenly: 10 over 4 stages are 3, 3, 2, 2. */
TEST(test_layers_of_stages)
{
    static const char *const settings[] = {"hidden=8", "sequence=4", "layers=10", NULL};
    static const size_t expected[] = {1 + 2 * 3, 2 * 3, 2 * 2, 2 * 2 + 1};
    const ModelConfig config = config_of("gpt", settings, 4);
    Device *device;
    OK(device_open("oracle", 0, &device, error));
    uint32_t place = 0;
    for (uint32_t s = 0; s < 4; s++) {
        Stage *stage;
        OK(stage_open(&config, device, s, 4, 1, &stage, error));
        assert_int_equal(stage->part_count, expected[s]);
        for (size_t i = 0; i < stage->part_count; i++)
            assert_int_equal(stage->parts[i].component.place, place++);
        stage_close(stage);
    }
    device_close(device);
}

/* The first `dense_layers` layers are dense; of the others, the first and every `expert_interval`-th after it have
   experts. The index of a component, which determines its starting weights, does not depend on the kinds of other
   layers. */
TEST(test_mixed_layers)
{
    static const char *const settings[] = {"hidden=8",       "sequence=4",        "layers=7",
                                           "dense_layers=2", "expert_interval=2", NULL};
    static const bool has_experts[] = {false, false, true, false, true, false, true};
    const ModelConfig config = config_of("moe", settings, 2);
    Device *device;
    OK(device_open("oracle", 0, &device, error));
    uint32_t layer = 0;
    for (uint32_t s = 0; s < 2; s++) {
        Stage *stage;
        OK(stage_open(&config, device, s, 2, 1, &stage, error));
        for (size_t i = 0; i < stage->part_count; i++) {
            const Component *component = &stage->parts[i].component;
            if (component->kind != &component_attention)
                continue;
            assert_ptr_equal(stage->parts[i + 1].component.kind,
                             has_experts[layer] ? &component_router : &component_mlp);
            assert_int_equal(component->place, 1 + 6 * layer++);
        }
        stage_close(stage);
    }
    assert_int_equal(layer, 7);
    device_close(device);
}

/* The seed determines the starting weights. Matrices have the standard deviation of their parameter; gains are 1,
   biases 0. */
TEST(test_initialization)
{
    static const char *const one[] = {"hidden=32", "layers=2", "seed=1", NULL};
    static const char *const two[] = {"hidden=32", "layers=2", "seed=2", NULL};
    Device *device;
    OK(device_open("cpu", 0, &device, error));
    float *weights[3];
    Stage *stage = NULL;
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        const ModelConfig config = config_of("gpt", i == 2 ? two : one, 1);
        stage_close(stage);
        OK(stage_open(&config, device, 0, 1, 1, &stage, error));
        count = stage_sizes(stage)->parameters;
        weights[i] = elements(device, count);
        poison(device, weights[i], count);
        OK(stage_initialize(stage, &(StageWeights){.parameters = weights[i], .master_weights = weights[i]}, error));
    }
    assert_memory_equal(weights[0], weights[1], count * sizeof(float));
    assert_memory_not_equal(weights[0], weights[2], count * sizeof(float));
    for (size_t p = 0; p < stage->part_count; p++) {
        const Part *part = &stage->parts[p];
        for (size_t i = 0; i < part->component.parameter_count; i++) {
            const Parameter *parameter = &part->component.parameters[i];
            const float *values = weights[0] + part->parameters + component_offset(&part->component, i);
            double mean = 0, square = 0;
            for (size_t e = 0; e < parameter->elements; e++) {
                mean += (double)values[e] / (double)parameter->elements;
                square += (double)values[e] * (double)values[e] / (double)parameter->elements;
            }
            if (parameter->deviation > 0) {
                assert_true(parameter->is_matrix);
                assert_true(fabs(mean) < 0.1 * parameter->deviation);
                assert_true(fabs(sqrt(square) / parameter->deviation - 1) < 0.05);
            } else {
                assert_false(parameter->is_matrix);
                assert_true(mean == parameter->constant && square == parameter->constant);
            }
        }
    }
    for (size_t i = 0; i < 3; i++)
        device->run->deallocate(device, weights[i]);
    stage_close(stage);
    device_close(device);
}

/* One update of AdamW from moments of zero follows its formula, for the step numbers 1, 7, 13 and 19, and sets the
   gradients to zero. Only matrices decay. */
TEST(test_update)
{
    static const char *const settings[] = {"hidden=8",       "sequence=4",       "heads=2",       "learning_rate=0.1",
                                           "warmup_steps=4", "weight_decay=0.5", "epsilon=1e-30", NULL};
    const ModelConfig config = config_of("gpt", settings, 1);
    for (uint64_t step = 1; step < 20; step += 6) {
        Device *device;
        Stage *stage;
        OK(device_open("oracle", 0, &device, error));
        OK(stage_open(&config, device, 0, 1, 1, &stage, error));
        const size_t count = stage_sizes(stage)->parameters;
        const StageWeights weights = weights_of(device, stage);
        double *before = elements(device, count);
        memcpy(before, weights.parameters, count * sizeof *before);
        randomize(device, weights.gradients, count, 9, 3);
        double *gradients = elements(device, count);
        memcpy(gradients, weights.gradients, count * sizeof *gradients);
        OK(stage_update(stage, &weights, step, 0.25, error));
        const double rate = 0.1 * (step < 4 ? (double)step / 4 : 1);
        for (size_t p = 0; p < stage->part_count; p++) {
            const Part *part = &stage->parts[p];
            for (size_t i = 0; i < part->component.parameter_count; i++) {
                const size_t offset = part->parameters + component_offset(&part->component, i);
                const double decay = part->component.parameters[i].is_matrix ? 0.5 : 0;
                for (size_t e = offset; e < offset + part->component.parameters[i].elements; e++) {
                    const double g = 0.25 * gradients[e];
                    const double mean = 0.1 * g / (1 - pow(0.9, (double)step));
                    const double square = 0.05 * g * g / (1 - pow(0.95, (double)step));
                    const double expected = before[e] - rate * decay * before[e] - rate * mean / sqrt(square);
                    assert_true(fabs(((double *)weights.parameters)[e] - expected) < 1e-12);
                    assert_true(((double *)weights.gradients)[e] == 0);
                }
            }
        }
        device->run->deallocate(device, before);
        device->run->deallocate(device, gradients);
        free_weights(device, weights);
        stage_close(stage);
        device_close(device);
    }
}

int main(void) { return test_program("settings", name_file, remove_file); }
