/* Load balancing of experts: the tokens per expert that W counts, what a step reports of these counts, and how they
   change the router's bias. */

#include "tests/model/harness.h"

#include "runtime/model/experts.h"
#include "runtime/model/stage.h"

static const char *const small[] = {
    "hidden=8", "heads=2",        "sequence=6",        "microbatch_size=2", "experts=4", "experts_per_token=2",
    "layers=3", "dense_layers=1", "balance_loss=0.25", "bias_rate=0.5",     NULL};
enum { EXPERTS = 4, TOKENS = 12, CHOSEN = 2 };

typedef struct Model {
    Device *device;
    Stage *stage;
    StageWeights weights;
    Slots slots;
} Model;

static void open_model(Model *model, const char *device)
{
    const ModelConfig config = config_of("moe", small, 1);
    OK(device_open(device, 0, &model->device, error));
    OK(stage_open(&config, model->device, 0, 1, 1, &model->stage, error));
    model->weights = weights_of(model->device, model->stage);
    make_slots(model->device, stage_sizes(model->stage), true, true, model->weights, &model->slots);
}

static void close_model(Model *model)
{
    free_slots(model->device, &model->slots);
    free_weights(model->device, model->weights);
    stage_close(model->stage);
    device_close(model->device);
}

static void run_microbatch(Model *model)
{
    OK(stage_forward(model->stage, &model->slots.buffers, error));
    OK(stage_backward_input(model->stage, &model->slots.buffers, error));
    OK(stage_backward_weight(model->stage, &model->slots.buffers, error));
}

/* Reads a parameter of the router in layer `number` (from 0) of the layers with experts. `from`: all weights or all
   gradients. */
static void read(const Model *model, const void *from, size_t number, size_t parameter, float *values)
{
    size_t i = 0;
    while (model->stage->parts[i].component.kind != &component_router || number-- > 0)
        i++;
    const Part *part = &model->stage->parts[i];
    const size_t offset = part->parameters + component_offset(&part->component, parameter);
    OK(model->device->run->store_floats(model->device, MASTER_TYPE, part->component.parameters[parameter].elements,
                                        (const char *)from + offset * model->device->run->size[MASTER_TYPE], values,
                                        error));
}

static double norm_of(const Model *model)
{
    double squares;
    OK(stage_gradient_norm(model->stage, &model->weights, &squares, error));
    return squares;
}

static void check_device(const char *device)
{
    Model model;
    open_model(&model, device);
    run_microbatch(&model);
    run_microbatch(&model);
    float loads[2][EXPERTS], balance[2], bias[EXPERTS], zero;
    double worst = 0, balances = 0;
    for (size_t r = 0; r < 2; r++) {
        float sum = 0;
        read(&model, model.weights.gradients, r, ROUTER_BIAS, loads[r]);
        read(&model, model.weights.gradients, r, ROUTER_BALANCE, &balance[r]);
        for (size_t e = 0; e < EXPERTS; e++) {
            sum += loads[r][e];
            worst = fmax(worst, (double)loads[r][e] / (2.0 * TOKENS * CHOSEN / EXPERTS));
        }
        assert_true(sum == 2 * TOKENS * CHOSEN);
        balances += (double)balance[r];
    }
    assert_true(worst > 1 && balances > 0);
    StageTallies tallies = {.balance_loss = 1};
    OK(stage_take_tallies(model.stage, &model.weights, &tallies, error));
    assert_true(fabs(tallies.worst_load - worst) < 1e-12 && tallies.layers == 2 &&
                fabs(tallies.balance_loss - 1 - balances) < 1e-6);
    for (size_t r = 0; r < 2; r++) { /* the tallies are 0 after they were taken */
        read(&model, model.weights.gradients, r, ROUTER_BIAS, bias);
        read(&model, model.weights.gradients, r, ROUTER_BALANCE, &zero);
        for (size_t e = 0; e < EXPERTS; e++)
            assert_true(bias[e] == 0 && zero == 0);
    }
    assert_true(norm_of(&model) > 0 && norm_of(&model) < 1e4);
    OK(stage_update(model.stage, &model.weights, 1, 1, error));
    for (size_t r = 0; r < 2; r++) {
        read(&model, model.weights.parameters, r, ROUTER_BIAS, bias);
        read(&model, model.weights.parameters, r, ROUTER_BALANCE, &zero);
        for (size_t e = 0; e < EXPERTS; e++) {
            const float mean = 2.0f * TOKENS * CHOSEN / EXPERTS;
            assert_true(bias[e] == (loads[r][e] < mean ? 0.5f : loads[r][e] > mean ? -0.5f : 0));
        }
        assert_true(zero == 0);
    }
    close_model(&model);
}

TEST(bias_moves_towards_equal_loads)
{
    check_device("oracle");
    check_device("cpu");
}

/* A stage whose layers have no experts has no tallies. */
TEST(dense_stages_have_no_tallies)
{
    static const char *const none[] = {NULL};
    const ModelConfig config = config_of("gpt", none, 1);
    Device *device;
    Stage *stage;
    StageTallies tallies = {0};
    OK(device_open("cpu", 0, &device, error));
    OK(stage_open(&config, device, 0, 1, 1, &stage, error));
    OK(stage_take_tallies(stage, &(StageWeights){0}, &tallies, error));
    assert_true(tallies.layers == 0 && tallies.balance_loss == 0);
    stage_close(stage);
    device_close(device);
}

/* All tokens go to the expert with the largest bias. The other experts get no tokens and gradients of 0, and all
   numbers are finite. */
TEST(all_tokens_may_go_to_one_expert)
{
    static const char *const settings[] = {"hidden=8",  "heads=2",  "sequence=6",          "microbatch_size=2",
                                           "experts=4", "layers=1", "experts_per_token=1", NULL};
    const ModelConfig config = config_of("moe", settings, 1);
    Model model;
    OK(device_open("cpu", 0, &model.device, error));
    OK(stage_open(&config, model.device, 0, 1, 1, &model.stage, error));
    model.weights = weights_of(model.device, model.stage);
    make_slots(model.device, stage_sizes(model.stage), true, true, model.weights, &model.slots);
    const Part *router = &model.stage->parts[2], *experts = &model.stage->parts[5];
    assert_ptr_equal(router->component.kind, &component_router);
    assert_ptr_equal(experts->component.kind, &component_experts);
    float *parameters = model.weights.parameters, *gradients = model.weights.gradients;
    parameters[router->parameters + component_offset(&router->component, ROUTER_BIAS) + 2] = 3;
    run_microbatch(&model);
    StageTallies tallies = {0};
    OK(stage_take_tallies(model.stage, &model.weights, &tallies, error));
    assert_true(tallies.loads == EXPERTS);
    const size_t each = experts->component.parameters[0].elements / EXPERTS;
    for (size_t e = 0; e < EXPERTS; e++) {
        double sum = 0;
        for (size_t i = 0; i < each; i++)
            sum += fabs((double)gradients[experts->parameters + e * each + i]);
        assert_true(e == 2 ? sum > 0 && isfinite(sum) : sum == 0);
    }
    assert_true(isfinite(model.slots.loss) && isfinite(norm_of(&model)));
    close_model(&model);
}

int main(void) { return test_program("balance", NULL, NULL); }
