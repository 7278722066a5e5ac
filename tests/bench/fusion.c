/* What an F&B costs the host on the CUDA device, its calls to CUDA apart (they go to a table of functions that do next to nothing), and
   what the planned order of its tiles should gain on a GPU. Prints lines: name value unit. */

#include "runtime/device/cuda.h"
#include "runtime/device/fused.h"
#include "runtime/model/model.h"
#include "tests/gpu/run/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MULTIPROCESSORS = 132, BATCHES = 40, TIMED = 100 };

/* --- a CUDA that is none --- */

static size_t calls;
static Fused last; /* launch of a table */

static const char *GetErrorString(CudaError error) { (void)error; return ""; }
static CudaError DriverGetVersion(int *version) { *version = 13000; return CUDA_OK; }
static CudaError GetDeviceCount(int *count) { *count = 1; return CUDA_OK; }
static CudaError SetDevice(int device) { (void)device; return CUDA_OK; }
static CudaError Free(void *memory) { free(memory); return CUDA_OK; }
static CudaError StreamDestroy(CudaStream *stream) { (void)stream; return CUDA_OK; }
static CudaError StreamSynchronize(CudaStream *stream) { (void)stream; return CUDA_OK; }
static CudaError EventDestroy(CudaEvent *event) { (void)event; return CUDA_OK; }
static CudaError LibraryUnload(CudaLibrary *library) { (void)library; return CUDA_OK; }
static CudaError EventQuery(CudaEvent *event) { (void)event; calls++; return CUDA_OK; }

static CudaError GetDeviceProperties(CudaProperties *properties, int device)
{
    (void)device;
    *properties = (CudaProperties){.name = "none", .major = 9, .multiprocessors = MULTIPROCESSORS, .shared_bytes = 227 << 10};
    return CUDA_OK;
}

static CudaError Malloc(void **memory, size_t bytes)
{
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return CUDA_OK;
}

static CudaError MemsetAsync(void *memory, int value, size_t bytes, CudaStream *stream)
{
    (void)memory, (void)value, (void)bytes, (void)stream;
    calls++;
    return CUDA_OK;
}

static CudaError MemcpyAsync(void *destination, const void *source, size_t bytes, CudaStream *stream)
{
    (void)stream;
    memcpy(destination, source, bytes);
    calls++;
    return CUDA_OK;
}

static CudaError StreamCreate(CudaStream **stream, int urgent)
{
    (void)urgent;
    *stream = NULL;
    return CUDA_OK;
}

static CudaError EventCreate(CudaEvent **event, int timing)
{
    (void)timing;
    *event = NULL;
    return CUDA_OK;
}

static CudaError EventRecord(CudaEvent *event, CudaStream *stream)
{
    (void)event, (void)stream;
    calls++;
    return CUDA_OK;
}

static CudaError LibraryLoadData(CudaLibrary **library, const void *image)
{
    (void)image;
    *library = NULL;
    return CUDA_OK;
}

static CudaError LibraryGetKernel(CudaKernel **kernel, CudaLibrary *library, const char *name)
{
    (void)library;
    *kernel = (CudaKernel *)(uintptr_t)(strncmp(name, "fused", 5) == 0 ? 2 : 1);
    return CUDA_OK;
}

static CudaError KernelSetAttributeForDevice(CudaKernel *kernel, int bytes, int device)
{
    (void)kernel, (void)bytes, (void)device;
    return CUDA_OK;
}

static CudaError LaunchKernel(CudaKernel *kernel, Launch launch, const void *parameters, CudaStream *stream)
{
    (void)launch, (void)stream;
    calls++;
    if ((uintptr_t)kernel == 2)
        memcpy(&last, parameters, sizeof last);
    return CUDA_OK;
}

static CudaError EncodeTensorMap(TensorMap *map, const void *matrix, const TensorMapShape *shape)
{
    (void)map, (void)matrix, (void)shape;
    calls++;
    return CUDA_OK;
}

static const CudaRuntime table = {
    .runtime_version = 13000, .GetErrorString = GetErrorString, .DriverGetVersion = DriverGetVersion,
    .GetDeviceCount = GetDeviceCount, .GetDeviceProperties = GetDeviceProperties, .SetDevice = SetDevice, .Malloc = Malloc,
    .Free = Free, .MallocHost = Malloc, .FreeHost = Free, .MemsetAsync = MemsetAsync, .MemcpyAsync = MemcpyAsync,
    .StreamCreate = StreamCreate, .StreamDestroy = StreamDestroy, .StreamSynchronize = StreamSynchronize,
    .EventCreate = EventCreate, .EventDestroy = EventDestroy, .EventRecord = EventRecord, .EventQuery = EventQuery,
    .LibraryLoadData = LibraryLoadData, .LibraryUnload = LibraryUnload, .LibraryGetKernel = LibraryGetKernel,
    .KernelSetAttributeForDevice = KernelSetAttributeForDevice, .LaunchKernel = LaunchKernel, .EncodeTensorMap = EncodeTensorMap,
};
const CudaRuntime *const cuda_runtime = &table;

#define IMAGE(name) {name, "sm_90a", "none"}
const CudaImage cuda_images[] = {IMAGE("product.bf16"), IMAGE("attention.bf16"), IMAGE("layers.bf16"), IMAGE("training.bf16"),
                                 IMAGE("training.f32"), IMAGE("hopper"), IMAGE("fused.bf16"), {NULL, NULL, NULL}};

/* --- what the order should gain --- */

static double operation_end[FUSED_OPERATIONS_MOST];

/* Blocks draw the tiles of the last launch in the order of its tickets, and wait for what they come after. */
static double time_together(const FusedShapes *shapes)
{
    double free_at[MULTIPROCESSORS] = {0}, end = 0;
    bool moves[MULTIPROCESSORS] = {false};
    memset(operation_end, 0, sizeof operation_end);
    for (unsigned r = 0; r < last.run_count[0]; r++)
        for (unsigned t = 0; t < last.runs[0][r].tiles; t++) {
            const struct FusedShape *shape = &shapes->of[last.runs[0][r].operation];
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
            double *own = &operation_end[last.runs[0][r].operation];
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
    for (unsigned r = 0; r < last.run_count[0]; r++)
        operations = last.runs[0][r].operation < operations ? operations : last.runs[0][r].operation + 1;
    const size_t bytes = operations * sizeof(Operation);
    Operation *copy = aligned_alloc(64, bytes);
    memcpy(copy, last.operations, bytes);
    OK(fused_shapes(copy, operations, 2, MULTIPROCESSORS, 0, &shapes, &error));
    const double together = time_together(&shapes), in_turn = time_in_turn(&shapes);
    free(copy);
    return together / in_turn;
}

/* --- an F&B of a stage in the middle, at addresses that nobody looks at --- */

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
        .parameters = far(2 * sizes->parameters), .parameter_gradients = far(4 * sizes->parameters), .x = far(2 * sizes->message),
        .y = far(2 * sizes->message), .dx = far(2 * sizes->message), .dy = far(2 * sizes->message), .context = far(2 * sizes->context),
        .stash = far(2 * sizes->stash), .gradient = far(2 * sizes->gradient), .workspace = far(2 * sizes->workspace),
    };
}

/* Each operation a launch; each of F, I and W, where they are small; all. */
typedef enum Way { IN_TURN, ALONE, FUSED, WAYS } Way;
static const char *const ways[WAYS] = {"in_turn", "alone", "fused"};

static void apart(const StagePair *pair)
{
    OK(stage_forward(pair->forward, &pair->forward_buffers, &error));
    OK(stage_backward_input(pair->backward, &pair->backward_buffers, &error));
    OK(stage_backward_weight(pair->backward, &pair->backward_buffers, &error));
}

static int64_t own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void measure(unsigned layers, unsigned hidden, unsigned sequence)
{
    static const Recipe recipe = {
        .entries = {{{RECIPE_ATTENTION, RECIPE_F}, {RECIPE_MLP, RECIPE_B}, {RECIPE_MLP, RECIPE_W}, {RECIPE_MLP, RECIPE_F},
                     {RECIPE_ATTENTION, RECIPE_B}, {RECIPE_ATTENTION, RECIPE_W}}}, .counts = {6},
    };
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
        pairs[p] = (StagePair){.forward = stage, .backward = stage, .forward_buffers = far_buffers(stage_sizes(stage)),
                               .backward_buffers = far_buffers(stage_sizes(stage)), .weights = true};
    int64_t begun = own_time();
    OK(stage_overlap(&pairs[0], &recipe, &error));
    const double first = (double)(own_time() - begun);
    for (Way way = IN_TURN; way < WAYS; way++) {
        double each = INFINITY; /* of the best batch: the machine may be others', too */
        device->in_turn = way == IN_TURN;
        for (int batch = 0; batch < BATCHES; batch++) {
            calls = 0;
            begun = own_time();
            for (int i = 0; i < TIMED; i++)
                if (way == FUSED)
                    OK(stage_overlap(&pairs[i % 2], &recipe, &error));
                else
                    apart(&pairs[i % 2]);
            const double now = (double)(own_time() - begun) / TIMED;
            each = now < each ? now : each;
        }
        printf("fb.host.%ux%u.%s %.2f us\nfb.calls.%ux%u.%s %.1f calls\n", layers, hidden, ways[way], each * 1e-3, layers, hidden,
               ways[way], (double)calls / TIMED);
    }
    printf("fb.plan.%ux%u %.0f us\n", layers, hidden, first * 1e-3);
    printf("fb.modelled.%ux%u %.3f of_in_turn\n", layers, hidden, gain());
    stage_close(stage);
    device_close(device);
}

int main(void)
{
    measure(1, 256, 256);
    measure(1, 512, 2048);
    measure(1, 1024, 2048);
    measure(1, 2048, 2048);
    measure(1, 4096, 4096);
    measure(4, 4096, 4096);
    return 0;
}
