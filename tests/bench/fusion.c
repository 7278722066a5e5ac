/* Measures how long the host takes per F&B on the CUDA device, without the calls of CUDA; and the predicted gain of the
   planned order of its tiles on a GPU. Prints lines: name value unit. */

#include "runtime/cuda/cuda.h"
#include "runtime/cuda/fused.h"
#include "runtime/model/model.h"
#include "tests/bench/no_cuda.h"
#include "tests/gpu/run/measure.h"
#include "tests/model/recipes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The computing components of the F&B of schedules/dualpipe.dps. */
static const Recipe published = {.entries = {DUALPIPE_COMPUTE}, .counts = {6}};

enum { BATCHES = 40, TIMED = 100 };

/* --- the predicted gain of the order --- */

static double operation_end[FUSED_OPERATIONS_MOST];

/* Simulates the launch in `last`. Each tile, in the order of the tickets, goes to the block that is free first, and
   waits for the operations that its operation depends on. Returns the end time of the launch, in the unit of
   fused_time. */
static double time_together(const FusedShapes *shapes)
{
    double free_at[MULTIPROCESSORS] = {0}, end = 0;
    bool moves[MULTIPROCESSORS] = {false};
    memset(operation_end, 0, sizeof operation_end);
    for (unsigned r = 0; r < last.run_count; r++)
        for (unsigned t = 0; t < last.runs[r].tiles; t++) {
            const struct FusedShape *shape = &shapes->of[last.runs[r].operation];
            int first = 0;
            for (int b = 1; b < MULTIPROCESSORS; b++)
                first = free_at[b] < free_at[first] ? b : first;
            double begin = free_at[first];
            for (unsigned a = 0; a < shape->after_count; a++)
                begin = operation_end[shape->after[a]] > begin ? operation_end[shape->after[a]] : begin;
            unsigned moving = 1;
            for (int b = 0; b < MULTIPROCESSORS; b++)
                moving += b != first && moves[b] && free_at[b] > begin;
            moves[first] = shape->bytes > 0;
            free_at[first] = begin + fused_time(shape, moving, MULTIPROCESSORS);
            end = free_at[first] > end ? free_at[first] : end;
            double *own = &operation_end[last.runs[r].operation];
            *own = free_at[first] > *own ? free_at[first] : *own;
        }
    return end;
}

static double time_in_turn(const FusedShapes *shapes)
{
    double end = 0;
    for (unsigned i = 0; i < shapes->count; i++) {
        const unsigned tiles = shapes->of[i].tiles, most = tiles < MULTIPROCESSORS ? tiles : MULTIPROCESSORS;
        end += tiles_of(tiles, MULTIPROCESSORS) * fused_time(&shapes->of[i], most, MULTIPROCESSORS);
    }
    return end;
}

static double gain(void)
{
    static FusedShapes shapes;
    unsigned operations = 0;
    for (unsigned r = 0; r < last.run_count; r++)
        operations = last.runs[r].operation < operations ? operations : last.runs[r].operation + 1;
    const size_t bytes = operations * sizeof(Operation);
    Operation *copy = aligned_alloc(64, bytes);
    memcpy(copy, last.operations, bytes);
    OK(fused_shapes(copy, operations, 2, MULTIPROCESSORS, &shapes, &error));
    const double together = time_together(&shapes), in_turn = time_in_turn(&shapes);
    free(copy);
    return together / in_turn;
}

/* --- an F&B of a middle stage, at addresses that nobody reads --- */

static void *far(size_t bytes)
{
    static uintptr_t next = (uintptr_t)1 << 44;
    void *place = (void *)next;
    next += (bytes + 255) / 256 * 256;
    return place;
}

static PassBuffers far_buffers(const StageSizes *sizes)
{
    return (PassBuffers){
        .parameters = far(2 * sizes->parameters),
        .parameter_gradients = far(4 * sizes->parameters),
        .x = far(2 * sizes->message),
        .y = far(2 * sizes->message),
        .dx = far(2 * sizes->message),
        .dy = far(2 * sizes->message),
        .context = far(2 * sizes->context),
        .stash = far(2 * sizes->stash),
        .gradient = far(2 * sizes->gradient),
        .workspace = far(2 * sizes->workspace),
    };
}

/* IN_TURN: each operation is launched by itself. ALONE: each F, I and W is one launch if the model is small; otherwise
   as IN_TURN. FUSED: the F&B is one launch; it is not measured for models that are too large for that. */
typedef enum Way { IN_TURN, ALONE, FUSED, WAYS } Way;
static const char *const ways[WAYS] = {"in_turn", "alone", "fused"};

typedef struct Bound {
    BoundPass *alone[RECIPE_PASSES], *together;
} Bound;

static void bind_alone(const StagePair *pair, BoundPass *alone[RECIPE_PASSES])
{
    for (RecipePass pass = RECIPE_F; pass < RECIPE_PASSES; pass++)
        OK(stage_bind(pair->forward, pass, pass == RECIPE_F ? &pair->forward_buffers : &pair->backward_buffers,
                      &alone[pass], &error));
}

static void run_one(const StagePair *pair, const Bound *bound, Way way)
{
    if (way == FUSED) {
        OK(stage_run(bound->together, &error));
    } else if (way == ALONE && bound->alone[RECIPE_F]) {
        for (RecipePass pass = RECIPE_F; pass < RECIPE_PASSES; pass++)
            OK(stage_run(bound->alone[pass], &error));
    } else {
        OK(stage_forward(pair->forward, &pair->forward_buffers, &error));
        OK(stage_backward_input(pair->backward, &pair->backward_buffers, &error));
        OK(stage_backward_weight(pair->backward, &pair->backward_buffers, &error));
    }
}

static int64_t own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void measure(unsigned layers, unsigned hidden, unsigned sequence)
{
    ModelConfig config;
    Device *device;
    Stage *stage;
    OK(model_config_load("gpt", &config, &error));
    config.layers = 3 * layers, config.hidden = hidden, config.sequence = sequence, config.heads = hidden / 64;
    config.microbatch_size = 1;
    OK(device_open("cuda", 0, &device, &error));
    OK(stage_open(&config, device, 1, 3, 1, &stage, &error));
    StagePair pairs[2];
    for (int p = 0; p < 2; p++)
        pairs[p] = (StagePair){.forward = stage,
                               .backward = stage,
                               .forward_buffers = far_buffers(stage_sizes(stage)),
                               .backward_buffers = far_buffers(stage_sizes(stage)),
                               .weights = true};
    Bound bound[2];
    int64_t begun = own_time();
    OK(stage_bind_overlap(&pairs[0], &published, &bound[0].together, &error));
    const double first = (double)(own_time() - begun);
    OK(stage_bind_overlap(&pairs[1], &published, &bound[1].together, &error));
    for (int p = 0; p < 2; p++)
        bind_alone(&pairs[p], bound[p].alone);
    for (Way way = IN_TURN; way < (bound->together ? WAYS : FUSED); way++) {
        double each = INFINITY; /* the time per F&B in ns, in the fastest batch: other programs may use the machine */
        for (int batch = 0; batch < BATCHES; batch++) {
            calls = 0;
            begun = own_time();
            for (int i = 0; i < TIMED; i++)
                run_one(&pairs[i % 2], &bound[i % 2], way);
            const double now = (double)(own_time() - begun) / TIMED;
            each = now < each ? now : each;
        }
        printf("fb.host.%ux%u.%s %.2f us\nfb.calls.%ux%u.%s %.1f calls\n", layers, hidden, ways[way], each * 1e-3,
               layers, hidden, ways[way], (double)calls / TIMED);
    }
    if (bound->together) {
        printf("fb.plan.%ux%u %.0f us\n", layers, hidden, first * 1e-3);
        OK(stage_run(bound->together, &error)); /* `last` becomes this launch */
        printf("fb.modelled.%ux%u %.3f of_in_turn\n", layers, hidden, gain());
    }
    stage_close(stage);
    device_close(device);
}

int main(void)
{
    measure(1, 256, 256);
    measure(1, 512, 2048);
    measure(4, 4096, 4096);
    return 0;
}
