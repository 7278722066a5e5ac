/* The CUDA runtime, linked statically. Its first call opens the driver's library, and returns an error if there is
   none. */

#include "runtime/cuda/runtime.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes CUDA load all kernels of a library when it loads the library, unless the user has set the variable. By default
   CUDA loads a kernel at its first launch, and loading may wait for running kernels. Such a kernel may be an NCCL
   transfer that waits for another rank, and that rank may wait for this launch: a deadlock. The variable is set when
   the plug-in is loaded, before dprun starts threads, because these read the environment. */
__attribute__((constructor)) static void load_kernels_early(void) { setenv("CUDA_MODULE_LOADING", "EAGER", 0); }

static CudaError GetDeviceProperties(CudaProperties *properties, int device)
{
    struct cudaDeviceProp all;
    const cudaError_t error = cudaGetDeviceProperties(&all, device);
    if (error != cudaSuccess)
        return error;
    *properties = (CudaProperties){
        .major = all.major,
        .minor = all.minor,
        .multiprocessors = all.multiProcessorCount,
        .shared_bytes = (int)all.sharedMemPerBlockOptin,
    };
    snprintf(properties->name, sizeof properties->name, "%s", all.name);
    memcpy(properties->uuid, &all.uuid, sizeof properties->uuid);
    return cudaSuccess;
}

static CudaError Malloc(void **memory, size_t bytes)
{
    const cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaErrorMemoryAllocation)
        cudaGetLastError(); /* clears the error, so that the next call does not return it */
    return error;
}

static CudaError MemcpyAsync(void *destination, const void *source, size_t bytes, CudaStream *stream)
{
    return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream);
}

static CudaError StreamCreate(CudaStream **stream, int urgent)
{
    int least = 0, greatest = 0;
    const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess)
        return error;
    return cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, urgent ? greatest : least);
}

static CudaError StreamWaitEvent(CudaStream *stream, CudaEvent *event)
{
    return cudaStreamWaitEvent(stream, event, cudaEventWaitDefault);
}

static CudaError EventCreate(CudaEvent **event, int timing)
{
    return cudaEventCreateWithFlags(event, timing ? cudaEventDefault : cudaEventDisableTiming);
}

static CudaError LibraryLoadData(CudaLibrary **library, const void *image)
{
    return cudaLibraryLoadData(library, image, NULL, NULL, 0, NULL, NULL, 0);
}

static CudaError KernelSetAttributeForDevice(CudaKernel *kernel, int bytes, int device)
{
    return cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes, device);
}

static CudaError LaunchKernel(CudaKernel *kernel, Launch launch, const void *parameters, CudaStream *stream)
{
    void *arguments[] = {(void *)(uintptr_t)parameters};
    struct cudaLaunchAttribute_st cluster = {.id = cudaLaunchAttributeClusterDimension,
                                             .val.clusterDim = {launch.cluster, 1, 1}};
    const cudaLaunchConfig_t config = {
        .gridDim = {launch.grid, 1, 1},
        .blockDim = {launch.block, 1, 1},
        .dynamicSmemBytes = launch.shared,
        .stream = stream,
        .attrs = &cluster,
        .numAttrs = launch.cluster > 1, /* GPUs before 9.0 do not support clusters */
    };
    return cudaLaunchKernelExC(&config, (const void *)kernel, arguments);
}

typedef CUresult EncodeTiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                             const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                             CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static CudaError EncodeTensorMap(TensorMap *map, const void *matrix, const TensorMapShape *shape)
{
    static _Atomic(EncodeTiled *) found;
    EncodeTiled *encode = found;
    if (!encode) {
        void *entry = NULL;
        enum cudaDriverEntryPointQueryResult result;
        const cudaError_t error =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
        if (error != cudaSuccess)
            return error;
        if (result != cudaDriverEntryPointSuccess || !entry)
            return cudaErrorSymbolNotFound;
        found = encode = (EncodeTiled *)(uintptr_t)entry;
    }
    const cuuint64_t sizes[2] = {shape->sizes[0], shape->sizes[1]}, pitches[1] = {shape->pitch};
    const cuuint32_t box[2] = {shape->box[0], shape->box[1]}, steps[2] = {1, 1};
    _Static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && _Alignof(TensorMap) >= _Alignof(CUtensorMap),
                   "the kernels' copy of CUDA's type");
    /* the driver's errors (CUresult) have the same numbers as the runtime's (CudaError) */
    return (CudaError)encode((CUtensorMap *)(void *)map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(uintptr_t)matrix,
                             sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* In C an enum of CUDA and the unsigned type of CudaError are compatible. */
static const CudaRuntime table = {
    .runtime_version = CUDART_VERSION,
    .GetErrorString = cudaGetErrorString,
    .DriverGetVersion = cudaDriverGetVersion,
    .GetDeviceCount = cudaGetDeviceCount,
    .GetDeviceProperties = GetDeviceProperties,
    .SetDevice = cudaSetDevice,
    .Malloc = Malloc,
    .Free = cudaFree,
    .MemsetAsync = cudaMemsetAsync,
    .MemcpyAsync = MemcpyAsync,
    .StreamCreate = StreamCreate,
    .StreamDestroy = cudaStreamDestroy,
    .StreamSynchronize = cudaStreamSynchronize,
    .StreamWaitEvent = StreamWaitEvent,
    .EventCreate = EventCreate,
    .EventDestroy = cudaEventDestroy,
    .EventRecord = cudaEventRecord,
    .EventQuery = cudaEventQuery,
    .EventElapsedTime = cudaEventElapsedTime,
    .LibraryLoadData = LibraryLoadData,
    .LibraryUnload = cudaLibraryUnload,
    .LibraryGetKernel = cudaLibraryGetKernel,
    .KernelSetAttributeForDevice = KernelSetAttributeForDevice,
    .LaunchKernel = LaunchKernel,
    .EncodeTensorMap = EncodeTensorMap,
};

const CudaRuntime *const cuda_runtime = &table;
