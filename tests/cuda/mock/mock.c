/* The functions of the mock runtime. */

#include "tests/cuda/mock/streams.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { POISONED = 1 << 20, FAILED = 719 };

struct CUkern_st {
    const MockKernel *kernel;
    size_t element_size;
    int shared;
};

enum { KERNELS_MAX = 64 };
struct CUlib_st {
    const char *unit;
    struct CUkern_st kernels[KERNELS_MAX];
    size_t count;
};

void mock_begin(const MockSetting *setting)
{
    pthread_mutex_lock(&mock_lock);
    mock_setting = *setting;
    mock_counts = (MockReport){0};
    streams_begin();
    pthread_mutex_unlock(&mock_lock);
}

MockReport mock_report(void)
{
    pthread_mutex_lock(&mock_lock);
    const MockReport now = mock_counts;
    pthread_mutex_unlock(&mock_lock);
    return now;
}

#define ENTER(name)                       \
    pthread_mutex_lock(&mock_lock);       \
    if (mock_fails(#name)) {              \
        pthread_mutex_unlock(&mock_lock); \
        return FAILED;                    \
    }
/* A call that frees something frees it even if the call must fail. So every leak is a mistake of the caller. */
#define ENTER_TO_TIDY(name)         \
    pthread_mutex_lock(&mock_lock); \
    const CudaError tidied = mock_fails(#name) ? FAILED : CUDA_OK;
#define LEAVE(code)                       \
    do {                                  \
        pthread_mutex_unlock(&mock_lock); \
        return code;                      \
    } while (0)

static void note_accesses(const CudaStream *stream, const MockKernel *kernel, size_t element_size,
                          const void *parameters)
{
    MockOperand operands[MOCK_OPERANDS];
    const size_t count = kernel->operands(parameters, operands);
    for (size_t i = 0; i < count; i++) {
        void *memory;
        memcpy(&memory, (const char *)parameters + operands[i].offset, sizeof memory);
        const size_t bytes = operands[i].count * (operands[i].size ? operands[i].size : element_size);
        if (operands[i].read)
            stream_touch(stream, kernel->name, memory, bytes, false);
        if (operands[i].written)
            stream_touch(stream, kernel->name, memory, bytes, true);
    }
}

static const char *GetErrorString(CudaError error)
{
    return error == FAILED                ? "unspecified launch failure"
           : error == CUDA_DRIVER_TOO_OLD ? "driver too old"
                                          : "no device";
}

static CudaError DriverGetVersion(int *version)
{
    *version = mock_setting.driver_version;
    return CUDA_OK;
}

static CudaError GetDeviceCount(int *count)
{
    ENTER(GetDeviceCount)
    *count = mock_setting.devices < 0 ? 0 : mock_setting.devices > 0 ? mock_setting.devices : 1;
    LEAVE(mock_setting.count_error);
}

static CudaError GetDeviceProperties(CudaProperties *properties, int device)
{
    ENTER(GetDeviceProperties)
    *properties = (CudaProperties){.name = "mock",
                                   .major = mock_setting.major ? mock_setting.major : 8,
                                   .minor = mock_setting.minor,
                                   .multiprocessors = mock_setting.multiprocessors ? mock_setting.multiprocessors : 4,
                                   .shared_bytes = mock_setting.shared_bytes ? mock_setting.shared_bytes : 227 << 10};
    properties->uuid[0] = (unsigned char)(1 + mock_setting.first_device + device);
    LEAVE(CUDA_OK);
}

static CudaError SetDevice(int device)
{
    ENTER(SetDevice)
    LEAVE(device == 0 || device < mock_setting.devices ? CUDA_OK : 101);
}

static CudaError Malloc(void **memory, size_t bytes)
{
    ENTER(Malloc)
    *memory = bytes > (size_t)1 << 40 ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*memory)
        LEAVE(CUDA_OUT_OF_MEMORY);
    memset(*memory, 0xff, bytes < POISONED ? bytes : POISONED); /* NaN in every type */
    block_add(*memory, bytes);
    mock_counts.live++;
    LEAVE(CUDA_OK);
}

static CudaError Free(void *memory)
{
    ENTER_TO_TIDY(Free)
    streams_run(); /* this call of CUDA waits for all streams of the device */
    if (!block_remove(memory))
        LEAVE(1);
    free(memory);
    mock_counts.live--;
    LEAVE(tidied);
}

static CudaError MemsetAsync(void *memory, int value, size_t bytes, CudaStream *stream)
{
    ENTER(MemsetAsync)
    stream_advance(stream);
    stream_touch(stream, "cudaMemsetAsync", memory, bytes, true);
    stream_enqueue(stream, (Work){.kind = SET, .destination = memory, .value = value, .bytes = bytes});
    LEAVE(CUDA_OK);
}

static CudaError MemcpyAsync(void *destination, const void *source, size_t bytes, CudaStream *stream)
{
    ENTER(MemcpyAsync)
    mock_counts.copies++;
    stream_advance(stream);
    stream_touch(stream, "cudaMemcpyAsync", source, bytes, false);
    stream_touch(stream, "cudaMemcpyAsync", destination, bytes, true);
    stream_enqueue(stream, (Work){.kind = COPY, .destination = destination, .source = source, .bytes = bytes});
    LEAVE(CUDA_OK);
}

static CudaError StreamCreate(CudaStream **stream, int urgent)
{
    (void)urgent;
    ENTER(StreamCreate)
    if (mock_stream_count == STREAMS_MAX)
        LEAVE(2);
    *stream = calloc(1, sizeof **stream);
    (*stream)->id = mock_stream_count;
    (*stream)->end = &(*stream)->first;
    mock_streams[mock_stream_count++] = *stream;
    mock_counts.live++;
    LEAVE(CUDA_OK);
}

static CudaError StreamDestroy(CudaStream *stream)
{
    ENTER_TO_TIDY(StreamDestroy)
    streams_run(); /* other streams may wait for these operations */
    mock_streams[stream->id] = NULL;
    free(stream);
    mock_counts.live--;
    LEAVE(tidied);
}

static CudaError StreamSynchronize(CudaStream *stream)
{
    ENTER(StreamSynchronize)
    const uint64_t end = stream->enqueued;
    /* a library's operation is not complete: another rank must first enqueue the one that it waits for */
    while (!stream_run_to(stream, end)) {
        pthread_mutex_unlock(&mock_lock);
        sched_yield();
        pthread_mutex_lock(&mock_lock);
    }
    clock_join(&mock_known, &stream->clock);
    LEAVE(CUDA_OK);
}

static CudaError StreamWaitEvent(CudaStream *stream, CudaEvent *event)
{
    ENTER(StreamWaitEvent)
    if (event->stream && !mock_setting.forget_waits) {
        clock_join(&stream->clock, &event->clock);
        stream_enqueue(stream, (Work){.kind = WAIT, .other = event->stream, .other_number = event->number});
    }
    LEAVE(CUDA_OK);
}

static CudaError EventCreate(CudaEvent **event, int timing)
{
    (void)timing;
    ENTER(EventCreate)
    *event = calloc(1, sizeof **event);
    mock_counts.live++;
    LEAVE(CUDA_OK);
}

static CudaError EventDestroy(CudaEvent *event)
{
    ENTER_TO_TIDY(EventDestroy)
    for (unsigned i = 0; i < mock_stream_count; i++)
        for (Work *operation = mock_streams[i] ? mock_streams[i]->first : NULL; operation; operation = operation->next)
            if (operation->event == event)
                operation->event = NULL;
    free(event);
    mock_counts.live--;
    LEAVE(tidied);
}

static CudaError EventRecord(CudaEvent *event, CudaStream *stream)
{
    ENTER(EventRecord)
    stream_enqueue(stream, (Work){.kind = RECORD, .event = event});
    event->stream = stream;
    event->number = stream->enqueued;
    event->looks = 0;
    clock_join(&stream->clock, &mock_known);
    event->clock = stream->clock;
    LEAVE(CUDA_OK);
}

static CudaError EventQuery(CudaEvent *event)
{
    ENTER(EventQuery)
    if (!event->stream)
        LEAVE(CUDA_OK);
    if (event->looks++ < 2 && event->stream->run < event->number)
        LEAVE(CUDA_NOT_READY);
    if (!stream_run_to(event->stream, event->number))
        LEAVE(CUDA_NOT_READY);
    clock_join(&mock_known, &event->clock);
    LEAVE(CUDA_OK);
}

static CudaError EventElapsedTime(float *milliseconds, CudaEvent *from, CudaEvent *to)
{
    ENTER(EventElapsedTime)
    if (!from->stream || !to->stream || from->stream->run < from->number || to->stream->run < to->number)
        LEAVE(CUDA_NOT_READY);
    *milliseconds = (float)((double)(to->time - from->time) * 1e-6);
    LEAVE(CUDA_OK);
}

static CudaError LibraryLoadData(CudaLibrary **library, const void *image)
{
    ENTER(LibraryLoadData)
    *library = calloc(1, sizeof **library);
    (*library)->unit = image;
    mock_counts.live++;
    LEAVE(CUDA_OK);
}

static CudaError LibraryUnload(CudaLibrary *library)
{
    ENTER_TO_TIDY(LibraryUnload)
    streams_run();
    free(library);
    mock_counts.live--;
    LEAVE(tidied);
}

static CudaError LibraryGetKernel(CudaKernel **kernel, CudaLibrary *library, const char *name)
{
    ENTER(LibraryGetKernel)
    if (library->count == KERNELS_MAX)
        LEAVE(2);
    *kernel = &library->kernels[library->count];
    (*kernel)->kernel = mock_kernel(name, &(*kernel)->element_size);
    if (!(*kernel)->kernel || !mock_is_in(library->unit, (*kernel)->kernel, name))
        LEAVE(500);
    library->count++;
    LEAVE(CUDA_OK);
}

static CudaError KernelSetAttributeForDevice(CudaKernel *kernel, int bytes, int device)
{
    ENTER(KernelSetAttributeForDevice)
    kernel->shared = bytes;
    LEAVE(device == 0 || device < mock_setting.devices ? CUDA_OK : 101);
}

static void launch_fused(const CudaKernel *kernel, unsigned grid, const Fused *table, CudaStream *stream)
{
    char problem[256];
    MockFused *fused = mock_fused_take(stream, table, kernel->element_size, mock_setting.forget_after, problem);
    if (*problem)
        mock_note(problem);
    stream_advance(stream);
    mock_counts.fused++;
    mock_counts.operations = mock_fused_count(fused);
    mock_counts.blocks = grid;
    stream_touch(stream, "a fused launch", table->operations, mock_counts.operations * sizeof *table->operations,
                 false);
    stream_touch(stream, "a fused launch", table->runs, table->run_count * sizeof *table->runs, false);
    stream_touch(stream, "a fused launch", table->drawn, sizeof *table->drawn, true);
    stream_touch(stream, "a fused launch", table->done, mock_counts.operations * sizeof *table->done, true);
    stream_touch(stream, "a fused launch", table->cleared, table->cleared_count * sizeof *table->cleared, true);
    for (unsigned i = 0; i < mock_counts.operations; i++) {
        const void *parameters;
        size_t element_size;
        const MockKernel *operation = mock_fused_operation(fused, i, &parameters, &element_size);
        note_accesses(stream, operation, element_size, parameters);
    }
    stream_enqueue(stream, (Work){.kind = LAUNCH_FUSED, .fused = fused});
}

static CudaError LaunchKernel(CudaKernel *kernel, Launch launch, const void *parameters, CudaStream *stream)
{
    ENTER(LaunchKernel)
    if (launch.grid == 0 || launch.block == 0 || launch.block > 1024 || launch.shared > (unsigned)kernel->shared)
        LEAVE(9);
    if (launch.cluster == 0 || launch.cluster > 8 || launch.grid % launch.cluster ||
        (launch.cluster > 1 && mock_setting.major < 9))
        LEAVE(912); /* cudaErrorInvalidClusterSize */
    mock_counts.launches++;
    mock_counts.clustered += launch.cluster > 1;
    if (!kernel->kernel->operands) {
        launch_fused(kernel, launch.grid, parameters, stream);
        LEAVE(CUDA_OK);
    }
    void *copy = aligned_alloc(128, (kernel->kernel->parameter_bytes + 127) / 128 * 128);
    memcpy(copy, parameters, kernel->kernel->parameter_bytes);
    stream_advance(stream);
    note_accesses(stream, kernel->kernel, kernel->element_size, copy);
    stream_enqueue(
        stream,
        (Work){.kind = LAUNCH, .kernel = kernel->kernel, .element_size = kernel->element_size, .parameters = copy});
    LEAVE(CUDA_OK);
}

static CudaError EncodeTensorMap(TensorMap *map, const void *matrix, const TensorMapShape *shape)
{
    ENTER(TensorMapEncodeTiled)
    memcpy(map->bytes, &matrix, sizeof matrix);
    LEAVE((uintptr_t)matrix % 16 == 0 && shape->pitch % 16 == 0 && shape->box[0] <= 256 && shape->box[1] <= 256
              ? CUDA_OK
              : 1);
}

static const CudaRuntime table = {
    .runtime_version = 13000,
    .GetErrorString = GetErrorString,
    .DriverGetVersion = DriverGetVersion,
    .GetDeviceCount = GetDeviceCount,
    .GetDeviceProperties = GetDeviceProperties,
    .SetDevice = SetDevice,
    .Malloc = Malloc,
    .Free = Free,
    .MemsetAsync = MemsetAsync,
    .MemcpyAsync = MemcpyAsync,
    .StreamCreate = StreamCreate,
    .StreamDestroy = StreamDestroy,
    .StreamSynchronize = StreamSynchronize,
    .StreamWaitEvent = StreamWaitEvent,
    .EventCreate = EventCreate,
    .EventDestroy = EventDestroy,
    .EventRecord = EventRecord,
    .EventQuery = EventQuery,
    .EventElapsedTime = EventElapsedTime,
    .LibraryLoadData = LibraryLoadData,
    .LibraryUnload = LibraryUnload,
    .LibraryGetKernel = LibraryGetKernel,
    .KernelSetAttributeForDevice = KernelSetAttributeForDevice,
    .LaunchKernel = LaunchKernel,
    .EncodeTensorMap = EncodeTensorMap,
};

const CudaRuntime *const cuda_runtime = &table;

#define UNITS(file, architecture) \
    {file ".f32", architecture, file ".f32"}, { file ".bf16", architecture, file ".bf16" }
#define IMAGES(architecture)                                                                         \
    UNITS("product", architecture), UNITS("attention", architecture), UNITS("layers", architecture), \
        UNITS("training", architecture)
const CudaImage cuda_images[] = {
    IMAGES("sm_80"),
    UNITS("fused", "sm_80"),
    IMAGES("sm_90a"),
    {"fused.f32", "sm_90a", "fused.f32"},
    {"hopper", "sm_90a", "hopper"},
    {NULL, NULL, NULL},
};
