#pragma once

/* A mock of CUDA for measuring the host's own code: launches do nothing, and nothing is asynchronous. Copies and fills
   are those of the host. */

#include "base/clock.h"
#include "runtime/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { MULTIPROCESSORS = 132 };

static size_t calls; /* calls that enqueue work, query an event or encode a tensor map */
static Fused last;   /* the table of the last fused launch */

struct CUevent_st {
    int timing;
    int64_t time; /* the host's clock at EventRecord, in ns; 0 without timing */
};

static const char *GetErrorString(CudaError error)
{
    (void)error;
    return "";
}
static CudaError DriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_OK;
}
static CudaError GetDeviceCount(int *count)
{
    *count = 1;
    return CUDA_OK;
}
static CudaError SetDevice(int device)
{
    (void)device;
    return CUDA_OK;
}
static CudaError Free(void *memory)
{
    free(memory);
    return CUDA_OK;
}
static CudaError StreamDestroy(CudaStream *stream)
{
    (void)stream;
    return CUDA_OK;
}
static CudaError StreamSynchronize(CudaStream *stream)
{
    (void)stream;
    return CUDA_OK;
}
static CudaError EventDestroy(CudaEvent *event)
{
    free(event);
    return CUDA_OK;
}
static CudaError LibraryUnload(CudaLibrary *library)
{
    (void)library;
    return CUDA_OK;
}
static CudaError EventQuery(CudaEvent *event)
{
    (void)event;
    calls++;
    return CUDA_OK;
}

static CudaError GetDeviceProperties(CudaProperties *properties, int device)
{
    (void)device;
    *properties =
        (CudaProperties){.name = "none", .major = 9, .multiprocessors = MULTIPROCESSORS, .shared_bytes = 227 << 10};
    return CUDA_OK;
}

static CudaError Malloc(void **memory, size_t bytes)
{
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return CUDA_OK;
}

static CudaError MemsetAsync(void *memory, int value, size_t bytes, CudaStream *stream)
{
    (void)stream;
    memset(memory, value, bytes);
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
    *event = calloc(1, sizeof **event);
    (*event)->timing = timing;
    return CUDA_OK;
}

static CudaError EventRecord(CudaEvent *event, CudaStream *stream)
{
    (void)stream;
    calls++;
    event->time = event->timing ? clock_nanoseconds() : 0;
    return CUDA_OK;
}

static CudaError EventElapsedTime(float *milliseconds, CudaEvent *from, CudaEvent *to)
{
    *milliseconds = (float)((double)(to->time - from->time) * 1e-6);
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

#define IMAGE(name)            \
    {                          \
        name, "sm_90a", "none" \
    }
const CudaImage cuda_images[] = {IMAGE("product.bf16"),  IMAGE("attention.bf16"), IMAGE("layers.bf16"),
                                 IMAGE("training.bf16"), IMAGE("training.f32"),   IMAGE("hopper"),
                                 IMAGE("fused.bf16"),    {NULL, NULL, NULL}};
