/* Measures an F&B of one layer of a GPT, without embedding and head, on a GPU: with one half after the other, with the
   halves on two streams, with one launch for each of F, I and W, and with one launch for all. Prints a name, a value
   and a unit per line.

       overlap                    shapes of real models; compares the results of one launch with those in turn
       overlap HIDDEN             the shape with this hidden size; small: the least one
       overlap operations [small] each operation of F, I and W alone
       overlap bits [N [small]]   N (1000) launches, alone and on two streams at once: how many give other bits */

#include "runtime/model/stage.h"
#include "tests/gpu/run/measure.h"
#include "tests/model/recipes.h"

#include <math.h>
#include <string.h>

/* The computing components of the F&B of schedules/dualpipe.dps. */
static const Recipe published = {.entries = {DUALPIPE_COMPUTE}, .counts = {6}};

enum { TIMED = 20, STREAMS = 2, BLOCKS_MOST = 32 };

typedef enum Way { IN_TURN, TWO_STREAMS, ALONE, FUSED, WAYS } Way;
static const char *const names[WAYS] = {"in_turn", "two_streams", "alone", "fused"};

typedef struct Work {
    Device *devices[STREAMS]; /* the second device runs the backward beside a forward on the first one */
    Stage *stages[STREAMS];
    DeviceEvent *begun, *ended;
    StagePair pair;
    BoundPass *together, *alone[RECIPE_PASSES];
    void *blocks[BLOCKS_MOST];
    size_t block_count;
} Work;

static void *memory(Work *work, NumberKind kind, size_t count)
{
    void *block = random_elements(work->devices[0], kind, count, work->block_count);
    work->blocks[work->block_count++] = block;
    return block;
}

static PassBuffers buffers_of(Work *work, void *parameters, void *gradients)
{
    const Stage *stage = work->stages[0];
    const StageSizes *sizes = stage_sizes(stage);
    return (PassBuffers){
        .parameters = parameters,
        .parameter_gradients = gradients,
        .x = memory(work, COMPUTE_TYPE, sizes->message),
        .y = memory(work, COMPUTE_TYPE, sizes->message),
        .dx = memory(work, COMPUTE_TYPE, sizes->message),
        .dy = memory(work, COMPUTE_TYPE, sizes->message),
        .context = memory(work, COMPUTE_TYPE, sizes->context),
        .stash = memory(work, COMPUTE_TYPE, sizes->stash),
        .gradient = memory(work, COMPUTE_TYPE, sizes->gradient),
        .workspace = memory(work, COMPUTE_TYPE, sizes->workspace),
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

static Work open_work(unsigned hidden, unsigned sequence)
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
    void *weights = memory(&work, COMPUTE_TYPE, parameters), *gradients = memory(&work, MASTER_TYPE, parameters);
    work.pair = (StagePair){
        .forward = work.stages[0],
        .backward = work.stages[0],
        .weights = true,
        .forward_buffers = buffers_of(&work, weights, gradients),
        .backward_buffers = buffers_of(&work, weights, gradients),
    };
    OK(stage_forward(work.stages[0], &work.pair.backward_buffers, &error));
    PairList *both;
    OK(stage_pair_list(&work.pair, &published, &both, &error));
    if (!both->list.prepared)
        OK(device->run->fusion->prepare(device, &both->list, 0, 0, &error));
    OK(stage_bind_overlap(&work.pair, &published, &work.together, &error));
    for (RecipePass pass = RECIPE_F; pass < RECIPE_PASSES; pass++) {
        OpList *list = &work.stages[0]->lists[pass];
        /* lists are prepared for one launch even if DeviceFusion says that their products are too large for one */
        if (!list->prepared)
            OK(device->run->fusion->prepare(device, list, 0, 0, &error));
        OK(stage_bind(work.stages[0], pass, pass == RECIPE_F ? &work.pair.forward_buffers : &work.pair.backward_buffers,
                      &work.alone[pass], &error));
    }
    return work;
}

static void close_work(Work *work)
{
    Device *device = work->devices[0];
    while (work->block_count > 0)
        device->run->deallocate(device, work->blocks[--work->block_count]);
    device->run->async->free_event(device, work->begun);
    device->run->async->free_event(device, work->ended);
    for (int d = 0; d < STREAMS; d++) {
        stage_close(work->stages[d]);
        device_close(work->devices[d]);
    }
}

/* --- the operations, one by one --- */

static const char *const op_names[] = {
#define OPERATION(name, OPERANDS) #name,
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"
};

typedef struct Single {
    Device *device;
    const OpList *list;
    size_t index; /* of the operation in the list */
    void *bases[PASS_BASES];
} Single;

static void run_single(const void *single)
{
    const Single *one = single;
    OK(op_run(one->device, one->list, one->index, one->index + 1, one->bases, &error));
}

static void measure_operations(unsigned hidden, unsigned sequence)
{
    Work work = open_work(hidden, sequence);
    Single one = {.device = work.devices[0]};
    pass_bases(&work.pair.backward_buffers, one.bases);
    for (int pass = 0; pass < RECIPE_PASSES; pass++) {
        const OpList *list = one.list = &work.stages[0]->lists[pass];
        for (one.index = 0; one.index < list->count; one.index++) {
            const double seconds = seconds_of(one.device, run_single, &one, TIMED);
            const Op *op = &list->ops[one.index];
            const KernelShape *shape = op->kernel ? &op->kernel->shape : NULL;
            printf("operation.%u.%c%02zu.%s.%zux%zu %.1f us\n", hidden, "FIW"[pass], one.index, op_names[op->kind],
                   shape ? shape->columns : op->count, shape ? shape->outputs : 0, seconds * 1e6);
        }
    }
    close_work(&work);
}

/* --- results --- */

/* What an F&B computes: y of the forward, dx of the backward, the gradients of the weights. */
typedef struct Result {
    char *bytes;
    size_t size, message, gradients; /* of all, of y and of dx, of the gradients */
} Result;

static Result result_of(const Work *work)
{
    Device *device = work->devices[0];
    const StageSizes *sizes = stage_sizes(work->stages[0]);
    Result result = {.message = sizes->message * device->run->size[COMPUTE_TYPE],
                     .gradients = sizes->parameters * device->run->size[MASTER_TYPE]};
    result.size = 2 * result.message + result.gradients;
    result.bytes = malloc(result.size);
    const StagePair *pair = &work->pair;
    OK(device->run->download(device, result.message, pair->forward_buffers.y, result.bytes, &error));
    OK(device->run->download(device, result.message, pair->backward_buffers.dx, result.bytes + result.message, &error));
    OK(device->run->download(device, result.gradients, pair->backward_buffers.parameter_gradients,
                             result.bytes + 2 * result.message, &error));
    return result;
}

/* |a - b| / |b| of `count` numbers: floats, or bfloat16 as the upper halves of floats. */
static double distance(const char *a, const char *b, size_t count, size_t size)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        float x = 0, y = 0;
        memcpy((char *)&x + sizeof x - size, a + i * size, size);
        memcpy((char *)&y + sizeof y - size, b + i * size, size);
        off += ((double)x - (double)y) * ((double)x - (double)y);
        all += (double)y * (double)y;
    }
    return sqrt(off / all);
}

/* The largest distance of the results of one launch from those of the halves in turn. */
static double difference(Work *work)
{
    Device *device = work->devices[0];
    const StageSizes *sizes = stage_sizes(work->stages[0]);
    Result results[2];
    for (int way = 0; way < 2; way++) {
        OK(device->run->fill(device, MASTER_TYPE, sizes->parameters, 0, work->pair.backward_buffers.parameter_gradients,
                             &error));
        work_on(work, way ? FUSED : IN_TURN);
        results[way] = result_of(work);
    }
    double worst = 0;
    for (int part = 0; part < 3; part++) {
        const NumberKind kind = part < 2 ? COMPUTE_TYPE : MASTER_TYPE;
        const size_t begin = (size_t)part * results[0].message;
        const double off = distance(results[1].bytes + begin, results[0].bytes + begin,
                                    part < 2 ? sizes->message : sizes->parameters, device->run->size[kind]);
        worst = off > worst || off != off ? off : worst;
    }
    free(results[0].bytes), free(results[1].bytes);
    return worst;
}

static void measure(unsigned hidden, unsigned sequence)
{
    Work work = open_work(hidden, sequence);
    double times[WAYS];
    for (Way way = 0; way < WAYS; way++) {
        times[way] = time_of(&work, way);
        printf("fb.%u.%s %.1f us\n", hidden, names[way], times[way]);
    }
    printf("fb.%u.ratio %.3f of_in_turn\n", hidden, times[FUSED] / times[IN_TURN]);
    const double off = difference(&work);
    printf("fb.%u.off %.2e of_in_turn\n", hidden, off);
    if (!(off <= 1e-2))
        exit(1);
    close_work(&work);
}

/* --- the same bits --- */

static void launch(Work *work)
{
    OK(work->devices[0]->run->fill(work->devices[0], MASTER_TYPE, stage_sizes(work->stages[0])->parameters, 0,
                                   work->pair.backward_buffers.parameter_gradients, &error));
    work_on(work, FUSED);
}

static void bits(unsigned runs, bool small)
{
    const unsigned hidden = small ? 128 : 512, sequence = small ? 64 : 1024;
    Work works[] = {open_work(hidden, sequence), open_work(hidden, sequence)};
    Result first[2], now = {0};
    for (int w = 0; w < 2; w++) {
        launch(&works[w]);
        first[w] = result_of(&works[w]);
    }
    static const char *const ways[] = {"alone", "two_ranks"};
    unsigned bad = 0;
    for (int ranks = 1; ranks <= 2; ranks++) {
        unsigned others = 0;
        for (unsigned run = 0; run < runs; run++) {
            for (int w = 0; w < ranks; w++)
                launch(&works[w]);
            for (int w = 0; w < ranks; w++) {
                free(now.bytes);
                now = result_of(&works[w]);
                others += memcmp(now.bytes, first[w].bytes, now.size) != 0;
            }
        }
        printf("bits.%s %u of_%u_launches_differ\n", ways[ranks - 1], others, (unsigned)ranks * runs);
        bad += others;
    }
    free(now.bytes);
    for (int w = 0; w < 2; w++) {
        free(first[w].bytes);
        close_work(&works[w]);
    }
    if (bad)
        exit(1);
}

int main(int argc, char **argv)
{
    /* output appears line by line, so results are printed even if the program fails later */
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const unsigned shapes[][2] = {{256, 512}, {512, 2048}, {1024, 2048}, {2048, 2048}, {4096, 4096}};
    if (argc > 1 && strcmp(argv[1], "bits") == 0)
        bits(argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1000, argc > 3);
    else if (argc > 1 && strcmp(argv[1], "operations") == 0)
        for (size_t s = 0; s < (argc > 2 ? 1 : sizeof shapes / sizeof *shapes); s++)
            measure_operations(argc > 2 ? 128 : shapes[s][0], argc > 2 ? 64 : shapes[s][1]);
    else if (argc > 1 && strcmp(argv[1], "small") == 0)
        measure(128, 64);
    else
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (argc == 1 || strtoul(argv[1], NULL, 10) == shapes[s][0])
                measure(shapes[s][0], shapes[s][1]);
    return 0;
}
