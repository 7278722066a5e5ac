/* Passes of whole stages on the CPU device: whether their order may change, whether they may run concurrently, and
   whether the model learns. */

#include "tests/model/harness.h"

#include <pthread.h>
#include <stdio.h>

enum { STAGES = 2, MICROBATCHES = 3 };

static const char *const small[] = {"hidden=24", "heads=3", "sequence=20", "microbatch_size=2", "layers=3", NULL};

/* All stages of a model in one thread, with slots for each microbatch. */
typedef struct Pipeline {
    Device *device;
    ModelConfig config;
    Stage *stages[STAGES];
    StageWeights weights[STAGES];
    Slots slots[STAGES][MICROBATCHES];
} Pipeline;

static void open_pipeline(Pipeline *pipeline, const char *device, const char *model, const char *const *assignments)
{
    OK(device_open(device, 0, &pipeline->device, error));
    pipeline->config = config_of(model, assignments, STAGES);
    for (uint32_t s = 0; s < STAGES; s++) {
        OK(stage_open(&pipeline->config, pipeline->device, s, STAGES, MICROBATCHES, &pipeline->stages[s], error));
        pipeline->weights[s] = weights_of(pipeline->device, pipeline->stages[s]);
        for (uint32_t m = 0; m < MICROBATCHES; m++)
            make_slots(pipeline->device, stage_sizes(pipeline->stages[s]), s == 0, s + 1 == STAGES,
                       pipeline->weights[s], &pipeline->slots[s][m]);
    }
    for (uint32_t m = 0; m < MICROBATCHES; m++) { /* y of stage 0 is x of stage 1, and dx of stage 1 is dy of stage 0 */
        pipeline->slots[1][m].buffers.x = pipeline->slots[0][m].y;
        pipeline->slots[0][m].buffers.dy = pipeline->slots[1][m].dx;
    }
}

static void close_pipeline(Pipeline *pipeline)
{
    for (uint32_t s = 0; s < STAGES; s++) {
        for (uint32_t m = 0; m < MICROBATCHES; m++)
            free_slots(pipeline->device, &pipeline->slots[s][m]);
        free_weights(pipeline->device, pipeline->weights[s]);
        stage_close(pipeline->stages[s]);
    }
    device_close(pipeline->device);
}

static void load(Pipeline *pipeline, const Dataset *data, uint64_t step)
{
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        dataset_microbatch(data, step, m, pipeline->slots[0][m].inputs, NULL);
        dataset_microbatch(data, step, m, NULL, pipeline->slots[STAGES - 1][m].targets);
    }
}

static void pass(Pipeline *pipeline, char kind, uint32_t stage, uint32_t microbatch)
{
    const PassBuffers *buffers = &pipeline->slots[stage][microbatch].buffers;
    switch (kind) {
    case 'F': OK(stage_forward(pipeline->stages[stage], buffers, error)); break;
    case 'I': OK(stage_backward_input(pipeline->stages[stage], buffers, error)); break;
    default: OK(stage_backward_weight(pipeline->stages[stage], buffers, error)); break;
    }
}

/* Runs passes given as "0F1 1I1": stage, pass, microbatch. */
static void run_order(Pipeline *pipeline, const char *order)
{
    for (; order[0]; order += order[3] ? 4 : 3)
        pass(pipeline, order[1], (uint32_t)(order[0] - '0'), (uint32_t)(order[2] - '0'));
}

TEST(test_moving_passes_changes_no_bit)
{
    static const char *const orders[] = {
        /* each microbatch forward and backward before the next */
        "0F0 1F0 1I0 1W0 0I0 0W0 0F1 1F1 1I1 1W1 0I1 0W1 0F2 1F2 1I2 1W2 0I2 0W2",
        /* all W at the end, with other passes between each I and its W */
        "0F0 0F1 0F2 1F0 1I0 1F1 1I1 1F2 1I2 0I0 0I1 0I2 0W0 0W1 0W2 1W0 1W1 1W2",
        /* on the last stage the I of microbatches 0 and 1 come long after their F */
        "0F0 1F0 0F1 1F1 0F2 1F2 1I2 1I0 0I2 1I1 1W0 0I0 0W0 1W1 0I1 0W1 1W2 0W2",
    };
    static const char *const models[] = {"gpt", "mlp", "moe"};
    for (size_t model = 0; model < sizeof models / sizeof *models; model++) {
        static Pipeline pipelines[3];
        for (size_t o = 0; o < 3; o++) {
            Dataset *data;
            open_pipeline(&pipelines[o], "cpu", models[model], small);
            OK(dataset_open(&pipelines[o].config, NULL, &data, error));
            load(&pipelines[o], data, 1);
            run_order(&pipelines[o], orders[o]);
            dataset_close(data);
        }
        for (size_t o = 1; o < 3; o++)
            for (uint32_t s = 0; s < STAGES; s++) {
                const size_t bytes = stage_sizes(pipelines[0].stages[s])->parameters * sizeof(float);
                assert_memory_equal(pipelines[o].weights[s].gradients, pipelines[0].weights[s].gradients, bytes);
                for (uint32_t m = 0; m < MICROBATCHES; m++)
                    assert_memory_equal(&pipelines[o].slots[s][m].loss, &pipelines[0].slots[s][m].loss, sizeof(double));
            }
        for (size_t o = 0; o < 3; o++)
            close_pipeline(&pipelines[o]);
    }
}

TEST(test_input_pass_leaves_weight_gradient_alone)
{
    static Pipeline pipeline;
    open_pipeline(&pipeline, "cpu", "gpt", small);
    Dataset *data;
    OK(dataset_open(&pipeline.config, NULL, &data, error));
    load(&pipeline, data, 1);
    for (uint32_t s = 0; s < STAGES; s++)
        poison(pipeline.device, pipeline.weights[s].gradients, stage_sizes(pipeline.stages[s])->parameters);
    run_order(&pipeline, "0F0 1F0 1I0 0I0");
    for (uint32_t s = 0; s < STAGES; s++)
        for (size_t i = 0; i < stage_sizes(pipeline.stages[s])->parameters; i++)
            assert_true(isnan(((float *)pipeline.weights[s].gradients)[i]));
    dataset_close(data);
    close_pipeline(&pipeline);
}

static void compare_segments(const Stage *one, const StageWeights *its, size_t first, const Stage *other,
                             const StageWeights *others, size_t second)
{
    const StageSegment a = stage_segment(one, first), b = stage_segment(other, second);
    const float *weights = its->parameters, *same = others->parameters;
    const float *gradients = its->gradients, *as_well = others->gradients;
    assert_int_equal(a.elements, b.elements);
    assert_memory_equal(weights + a.offset, same + b.offset, a.elements * sizeof(float));
    assert_memory_equal(gradients + a.offset, as_well + b.offset, a.elements * sizeof(float));
}

/* The whole model as one stage gives the same bits as its two stages, from the same starting weights. */
static void check_cut(const char *model)
{
    static Pipeline pipeline;
    open_pipeline(&pipeline, "cpu", model, small);
    Dataset *data;
    OK(dataset_open(&pipeline.config, NULL, &data, error));
    load(&pipeline, data, 7);
    run_order(&pipeline, "0F0 1F0 1I0 0I0 0W0 1W0");
    Stage *whole;
    Slots slots;
    OK(stage_open(&pipeline.config, pipeline.device, 0, 1, MICROBATCHES, &whole, error));
    const StageWeights weights = weights_of(pipeline.device, whole);
    make_slots(pipeline.device, stage_sizes(whole), true, true, weights, &slots);
    dataset_microbatch(data, 7, 0, slots.inputs, slots.targets);
    OK(stage_forward(whole, &slots.buffers, error));
    OK(stage_backward_input(whole, &slots.buffers, error));
    OK(stage_backward_weight(whole, &slots.buffers, error));
    assert_true(slots.loss == pipeline.slots[1][0].loss);
    assert_memory_equal(slots.outputs, pipeline.slots[1][0].outputs, stage_sizes(whole)->outputs * sizeof(float));
    assert_int_equal(stage_sizes(whole)->saved,
                     stage_sizes(pipeline.stages[0])->saved + stage_sizes(pipeline.stages[1])->saved);
    size_t segments = 0;
    for (uint32_t s = 0; s < STAGES; s++)
        for (size_t i = 0; i < stage_segments(pipeline.stages[s]); i++)
            compare_segments(whole, &weights, segments++, pipeline.stages[s], &pipeline.weights[s], i);
    assert_int_equal(segments, stage_segments(whole));
    double squares[3];
    OK(stage_gradient_norm(whole, &weights, &squares[2], error));
    for (uint32_t s = 0; s < STAGES; s++)
        OK(stage_gradient_norm(pipeline.stages[s], &pipeline.weights[s], &squares[s], error));
    assert_true(squares[2] > 0 && fabs(squares[0] + squares[1] - squares[2]) < 1e-12 * squares[2]);
    free_slots(pipeline.device, &slots);
    free_weights(pipeline.device, weights);
    stage_close(whole);
    dataset_close(data);
    close_pipeline(&pipeline);
}

TEST(test_cut_does_not_matter)
{
    check_cut("gpt");
    check_cut("moe");
}

/* The outputs are the logits from which the loss is computed. */
TEST(test_outputs)
{
    static Pipeline pipeline;
    open_pipeline(&pipeline, "cpu", "gpt", small);
    Dataset *data;
    OK(dataset_open(&pipeline.config, NULL, &data, error));
    load(&pipeline, data, 3);
    run_order(&pipeline, "0F0 1F0");
    const Slots *slots = &pipeline.slots[1][0];
    const size_t rows = 40, vocabulary = 256;
    assert_int_equal(stage_sizes(pipeline.stages[1])->outputs, rows * vocabulary);
    assert_int_equal(stage_sizes(pipeline.stages[0])->outputs, 0);
    double loss = 0;
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < vocabulary; j++)
            sum += exp((double)slots->outputs[i * vocabulary + j]);
        loss +=
            (log(sum) - (double)slots->outputs[i * vocabulary + (size_t)((int32_t *)slots->targets)[i]]) / (double)rows;
    }
    assert_true(fabs(loss - slots->loss) < 1e-5);
    dataset_close(data);
    close_pipeline(&pipeline);
}

typedef struct Trainer {
    Pipeline pipeline;
    Dataset *data;
    double loss[5];
    pthread_t thread;
} Trainer;

static void *train(void *argument)
{
    Trainer *trainer = argument;
    Pipeline *pipeline = &trainer->pipeline;
    for (uint64_t step = 1; step <= 5; step++) {
        load(pipeline, trainer->data, step);
        run_order(pipeline, "0F0 0F1 1F0 1I0 0I0 1F1 1I1 0W0 0I1 1W0 1W1 0W1");
        trainer->loss[step - 1] = pipeline->slots[1][0].loss;
        for (uint32_t s = 0; s < STAGES; s++)
            OK(stage_update(pipeline->stages[s], &pipeline->weights[s], step, 0.5, error));
    }
    return NULL;
}

/* Trains in this thread and in two others at the same time; all must compute the same bits. */
TEST(test_threads_compute_the_same_bits)
{
    static Trainer trainers[3];
    for (size_t t = 0; t < 3; t++) {
        open_pipeline(&trainers[t].pipeline, "cpu", "gpt", small);
        OK(dataset_open(&trainers[t].pipeline.config, NULL, &trainers[t].data, error));
    }
    for (size_t t = 1; t < 3; t++)
        assert_int_equal(pthread_create(&trainers[t].thread, NULL, train, &trainers[t]), 0);
    train(&trainers[0]);
    for (size_t t = 1; t < 3; t++)
        pthread_join(trainers[t].thread, NULL);
    for (size_t t = 1; t < 3; t++) {
        assert_memory_equal(trainers[t].loss, trainers[0].loss, sizeof trainers[0].loss);
        for (uint32_t s = 0; s < STAGES; s++)
            assert_memory_equal(trainers[t].pipeline.weights[s].parameters, trainers[0].pipeline.weights[s].parameters,
                                stage_sizes(trainers[0].pipeline.stages[s])->parameters * sizeof(float));
    }
    assert_true(trainers[0].loss[4] < trainers[0].loss[0]);
    for (size_t t = 0; t < 3; t++) {
        dataset_close(trainers[t].data);
        close_pipeline(&trainers[t].pipeline);
    }
}

/* Runs the same passes on the CPU device and on the oracle. Losses and gradients differ only as float differs from
   double. */
TEST(test_cpu_computes_what_the_oracle_computes)
{
    static const char *const models[] = {"gpt", "mlp", "moe"};
    for (size_t model = 0; model < sizeof models / sizeof *models; model++) {
        static Pipeline cpu, oracle;
        open_pipeline(&cpu, "cpu", models[model], small);
        open_pipeline(&oracle, "oracle", models[model], small);
        Dataset *data;
        OK(dataset_open(&cpu.config, NULL, &data, error));
        load(&cpu, data, 1);
        load(&oracle, data, 1);
        run_order(&cpu, "0F0 1F0 1I0 0I0 0W0 1W0");
        run_order(&oracle, "0F0 1F0 1I0 0I0 0W0 1W0");
        assert_true(fabs(cpu.slots[1][0].loss - oracle.slots[1][0].loss) < 1e-5);
        for (uint32_t s = 0; s < STAGES; s++) {
            double difference = 0, length = 0;
            for (size_t i = 0; i < stage_sizes(cpu.stages[s])->parameters; i++) {
                const double expected = ((double *)oracle.weights[s].gradients)[i];
                const double off = (double)((float *)cpu.weights[s].gradients)[i] - expected;
                difference += off * off;
                length += expected * expected;
            }
            assert_true(length > 0 && difference < 1e-10 * length);
        }
        dataset_close(data);
        close_pipeline(&cpu);
        close_pipeline(&oracle);
    }
}

/* The loss of a small model on a short text that repeats is below 0.3 after 100 steps. */
TEST(test_overfits)
{
    static const char *const settings[] = {"hidden=32",         "heads=2",  "sequence=16",
                                           "microbatch_size=4", "layers=2", "learning_rate=1e-2",
                                           "warmup_steps=5",    NULL};
    static const char text[] = "A schedule is a program in a tiny language. Nothing runs unproven. ";
    const char *build = getenv("BUILD");
    char path[4096];
    snprintf(path, sizeof path, "%s/overfit.txt", build ? build : ".");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 20; i++)
        fputs(text, file);
    fclose(file);
    static Pipeline pipeline;
    open_pipeline(&pipeline, "cpu", "gpt", settings);
    Dataset *data;
    OK(dataset_open(&pipeline.config, path, &data, error));
    double loss = 0;
    for (uint64_t step = 1; step <= 100; step++) {
        load(&pipeline, data, step);
        run_order(&pipeline, "0F0 1F0 1I0 0I0 0W0 1W0 0F1 1F1 1I1 0I1 0W1 1W1 0F2 1F2 1I2 0I2 0W2 1W2");
        loss = 0;
        for (uint32_t m = 0; m < MICROBATCHES; m++)
            loss += pipeline.slots[1][m].loss / MICROBATCHES;
        for (uint32_t s = 0; s < STAGES; s++)
            OK(stage_update(pipeline.stages[s], &pipeline.weights[s], step, 1, error));
    }
    if (!(loss < 0.3))
        fail_msg("loss %g after 100 steps", loss);
    remove(path);
    dataset_close(data);
    close_pipeline(&pipeline);
}

int main(void) { return test_program("passes", NULL, NULL); }
