/* Measures an F&B of one layer of a GPT, without embedding and head, on a GPU: with one half after the other, with the
   halves on two streams, with one launch for each of F, I and W, and with one launch for all. Prints a name, a value
   and a unit per line. */

#include "runtime/model/stage.h"
#include "tests/gpu/run/measure.h"
#include "tests/model/recipes.h"

#include <string.h>

/* The computing components of the F&B of schedules/dualpipe.dps. */
static const Recipe published = {.entries = {DUALPIPE_COMPUTE}, .counts = {6}};

enum { WARM = 3, TIMED = 20, STREAMS = 2 };

typedef enum Way { IN_TURN, TWO_STREAMS, ALONE, FUSED, WAYS } Way;
static const char *const names[WAYS] = {"in_turn", "two_streams", "alone", "fused"};

typedef struct Work {
    Device *devices[STREAMS]; /* the second device runs the backward beside a forward on the first one */
    Stage *stages[STREAMS];
    DeviceEvent *begun, *ended;
    StagePair pair;
    BoundPass *together, *alone[RECIPE_PASSES];
} Work;

enum { BLOCKS_MOST = 32 };
static void *blocks[BLOCKS_MOST];
static size_t block_count;

static void *memory(Device *device, NumberKind kind, size_t count)
{
    void *block = random_elements(device, kind, count, block_count);
    blocks[block_count++] = block;
    return block;
}

static PassBuffers buffers_of(Device *device, const Stage *stage, void *parameters, void *gradients)
{
    const StageSizes *sizes = stage_sizes(stage);
    return (PassBuffers){
        .parameters = parameters,
        .parameter_gradients = gradients,
        .x = memory(device, COMPUTE_TYPE, sizes->message),
        .y = memory(device, COMPUTE_TYPE, sizes->message),
        .dx = memory(device, COMPUTE_TYPE, sizes->message),
        .dy = memory(device, COMPUTE_TYPE, sizes->message),
        .context = memory(device, COMPUTE_TYPE, sizes->context),
        .stash = memory(device, COMPUTE_TYPE, sizes->stash),
        .gradient = memory(device, COMPUTE_TYPE, sizes->gradient),
        .workspace = memory(device, COMPUTE_TYPE, sizes->workspace),
    };
}

static void work_on(Work *work, Way way)
{
    const StagePair *pair = &work->pair;
    if (way == FUSED) {
        OK(stage_run(work->together, &error));
        return;
    }
    if (way == ALONE) {
        for (int pass = 0; pass < RECIPE_PASSES; pass++)
            OK(stage_run(work->alone[pass], &error));
        return;
    }
    Stage *backward = way == TWO_STREAMS ? work->stages[1] : pair->backward;
    OK(stage_forward(pair->forward, &pair->forward_buffers, &error));
    OK(stage_backward_input(backward, &pair->backward_buffers, &error));
    OK(stage_backward_weight(backward, &pair->backward_buffers, &error));
}

/* Microseconds of one F&B: the mean of TIMED runs. */
static double time_of(Work *work, Way way)
{
    Device *first = work->devices[0], *second = work->devices[1];
    const DeviceAsync *queues = first->run->async;
    int64_t time;
    for (int i = 0; i < WARM; i++)
        work_on(work, way);
    OK(queues->record(second, QUEUE_COMPUTE, work->ended, &error));
    OK(queues->await(first, QUEUE_COMPUTE, work->ended, &error));
    OK(queues->mark(first, 0, &error));
    OK(queues->record(first, QUEUE_COMPUTE, work->begun, &error));
    OK(queues->await(second, QUEUE_COMPUTE, work->begun, &error));
    for (int i = 0; i < TIMED; i++)
        work_on(work, way);
    OK(queues->record(second, QUEUE_COMPUTE, work->ended, &error));
    OK(queues->await(first, QUEUE_COMPUTE, work->ended, &error));
    OK(queues->mark(first, 1, &error));
    wait_for_mark(first, 1);
    OK(queues->mark_time(first, 1, &time, &error));
    return (double)time * 1e-3 / TIMED;
}

static void measure(unsigned hidden, unsigned sequence)
{
    Work work = {.begun = NULL};
    ModelConfig config;
    OK(model_config_load("gpt", &config, &error));
    config.layers = 3, config.hidden = hidden, config.sequence = sequence, config.heads = hidden / 128,
    config.microbatch_size = 1;
    for (int d = 0; d < STREAMS; d++) {
        OK(device_open("cuda", 0, &work.devices[d], &error));
        OK(stage_open(&config, work.devices[d], 1, 3, 1, &work.stages[d], &error));
    }
    Device *device = work.devices[0];
    OK(device->run->async->make_marks(device, 2, &error));
    OK(device->run->async->make_event(device, &work.begun, &error));
    OK(device->run->async->make_event(device, &work.ended, &error));
    const size_t parameters = stage_sizes(work.stages[0])->parameters;
    void *weights = memory(device, COMPUTE_TYPE, parameters), *gradients = memory(device, MASTER_TYPE, parameters);
    work.pair = (StagePair){
        .forward = work.stages[0],
        .backward = work.stages[0],
        .weights = true,
        .forward_buffers = buffers_of(device, work.stages[0], weights, gradients),
        .backward_buffers = buffers_of(device, work.stages[0], weights, gradients),
    };
    OK(stage_forward(work.stages[0], &work.pair.backward_buffers, &error));
    OK(stage_bind_overlap(&work.pair, &published, &work.together, &error));
    for (RecipePass pass = RECIPE_F; pass < RECIPE_PASSES; pass++) {
        OpList *list = &work.stages[0]->lists[pass];
        /* prepares the list for one launch even if DeviceFusion.small says that its products are too large for one */
        if (!list->prepared)
            OK(device->run->fusion->prepare(device, list, 0, 0, &error));
        OK(stage_bind(work.stages[0], pass, pass == RECIPE_F ? &work.pair.forward_buffers : &work.pair.backward_buffers,
                      &work.alone[pass], &error));
    }
    double times[WAYS];
    for (Way way = 0; way < WAYS; way++) {
        times[way] = time_of(&work, way);
        printf("fb.%u.%s %.1f us\n", hidden, names[way], times[way]);
    }
    printf("fb.%u.ratio %.3f of_in_turn\n", hidden, times[FUSED] / times[IN_TURN]);
    while (block_count > 0)
        device->run->deallocate(device, blocks[--block_count]);
    device->run->async->free_event(device, work.begun);
    device->run->async->free_event(device, work.ended);
    for (int d = 0; d < STREAMS; d++) {
        stage_close(work.stages[d]);
        device_close(work.devices[d]);
    }
}

int main(void)
{
    /* output appears line by line, so results are printed even if the program fails later */
    setvbuf(stdout, NULL, _IOLBF, 0);
    measure(256, 512);
    measure(512, 2048);
    measure(1024, 2048);
    measure(2048, 2048);
    measure(4096, 4096);
    return 0;
}
