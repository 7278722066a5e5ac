#ifndef DEVICE_CUDA_RUNTIME_H
#define DEVICE_CUDA_RUNTIME_H

/* What the CUDA device asks of CUDA: one table of functions, named like those of the CUDA runtime without their "cuda".
   A build that has the CUDA toolkit links the real one; tests supply one of their own. Every function returns 0 or
   CUDA's number of an error, a cudaError_t; those that need a device take the one that the calling thread has set. */

#include "runtime/device/kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

/* CUDA's own names of what its handles point to, so that they pass without a cast. */
typedef struct CUstream_st CudaStream;
typedef struct CUevent_st CudaEvent;
typedef struct CUlib_st CudaLibrary;
typedef struct CUkern_st CudaKernel;

typedef struct CudaProperties {
    char name[256];
    unsigned char uuid[16];
    int major, minor; /* compute capability */
    int multiprocessors;
    int shared_bytes; /* most dynamic shared memory of a block, once asked for */
} CudaProperties;

typedef unsigned CudaError;

/* Those that we tell apart. */
enum { CUDA_OK = 0, CUDA_OUT_OF_MEMORY = 2, CUDA_DRIVER_TOO_OLD = 35, CUDA_NOT_READY = 600 };

typedef struct CudaRuntime {
    int runtime_version; /* 1000 * major + 10 * minor */

    const char *(*GetErrorString)(CudaError error);
    CudaError (*DriverGetVersion)(int *version); /* 0: no driver */
    CudaError (*GetDeviceCount)(int *count);
    CudaError (*GetDeviceProperties)(CudaProperties *properties, int device);
    CudaError (*SetDevice)(int device);

    CudaError (*Malloc)(void **memory, size_t bytes);
    CudaError (*Free)(void *memory);
    CudaError (*MemsetAsync)(void *memory, int value, size_t bytes, CudaStream *stream);
    /* from and to any memory */
    CudaError (*MemcpyAsync)(void *destination, const void *source, size_t bytes, CudaStream *stream);

    /* Does not wait for the default stream; `urgent`: its work goes before that of others. */
    CudaError (*StreamCreate)(CudaStream **stream, int urgent);
    CudaError (*StreamDestroy)(CudaStream *stream);
    CudaError (*StreamSynchronize)(CudaStream *stream);
    CudaError (*StreamWaitEvent)(CudaStream *stream, CudaEvent *event);

    CudaError (*EventCreate)(CudaEvent **event, int timing);
    CudaError (*EventDestroy)(CudaEvent *event);
    CudaError (*EventRecord)(CudaEvent *event, CudaStream *stream);
    CudaError (*EventQuery)(CudaEvent *event); /* CUDA_NOT_READY before it has happened */
    CudaError (*EventElapsedTime)(float *milliseconds, CudaEvent *from, CudaEvent *to);

    CudaError (*LibraryLoadData)(CudaLibrary **library, const void *image);
    CudaError (*LibraryUnload)(CudaLibrary *library);
    CudaError (*LibraryGetKernel)(CudaKernel **kernel, CudaLibrary *library, const char *name);
    /* cudaFuncAttributeMaxDynamicSharedMemorySize: launches may have so much of it. */
    CudaError (*KernelSetAttributeForDevice)(CudaKernel *kernel, int bytes, int device);
    /* one, by value */
    CudaError (*LaunchKernel)(CudaKernel *kernel, Launch launch, const void *parameters, CudaStream *stream);

    /* cuTensorMapEncodeTiled, for bfloat16 matrices as TensorMapShape says. */
    CudaError (*EncodeTensorMap)(TensorMap *map, const void *matrix, const TensorMapShape *shape);
} CudaRuntime;

/* NULL in a build without the toolkit. */
extern const CudaRuntime *const cuda_runtime;

#endif
