#pragma once

/* The CUDA functions that the device uses: one table, with names like those of the CUDA runtime, but without "cuda".
   The plug-in links the real ones. tests/cuda links a mock: its streams run as late, as early or as randomly as they
   may, its kernels are the functions of the CPU device, it notes each unordered access (also between the operations of
   a fused launch), and it can make every call fail. Every function but GetErrorString returns 0 or
   CUDA's error number (cudaError_t). Functions without a parameter `device` use the one that the calling thread has
   set. */

#include "runtime/cuda/kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

/* CUDA's handles are pointers to these structs. With CUDA's own struct names, handles need no cast. */
typedef struct CUstream_st CudaStream;
typedef struct CUevent_st CudaEvent;
typedef struct CUlib_st CudaLibrary;
typedef struct CUkern_st CudaKernel;

typedef struct CudaProperties {
    char name[256];
    unsigned char uuid[16];
    int major, minor; /* compute capability */
    int multiprocessors;
    int shared_bytes; /* most dynamic shared memory of a block, after opting in */
} CudaProperties;

typedef unsigned CudaError;

/* The error numbers that the device distinguishes. */
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
    /* from host or device memory to host or device memory */
    CudaError (*MemcpyAsync)(void *destination, const void *source, size_t bytes, CudaStream *stream);

    /* Creates a stream that does not wait for the default stream. `urgent`: it has priority over other streams. */
    CudaError (*StreamCreate)(CudaStream **stream, int urgent);
    CudaError (*StreamDestroy)(CudaStream *stream);
    CudaError (*StreamSynchronize)(CudaStream *stream);
    CudaError (*StreamWaitEvent)(CudaStream *stream, CudaEvent *event);

    CudaError (*EventCreate)(CudaEvent **event, int timing);
    CudaError (*EventDestroy)(CudaEvent *event);
    CudaError (*EventRecord)(CudaEvent *event, CudaStream *stream);
    CudaError (*EventQuery)(CudaEvent *event); /* CUDA_OK: the stream has reached the event; CUDA_NOT_READY: not yet */
    CudaError (*EventElapsedTime)(float *milliseconds, CudaEvent *from, CudaEvent *to);

    CudaError (*LibraryLoadData)(CudaLibrary **library, const void *image);
    CudaError (*LibraryUnload)(CudaLibrary *library);
    CudaError (*LibraryGetKernel)(CudaKernel **kernel, CudaLibrary *library, const char *name);
    /* cudaFuncAttributeMaxDynamicSharedMemorySize: allows launches with this much dynamic shared memory. */
    CudaError (*KernelSetAttributeForDevice)(CudaKernel *kernel, int bytes, int device);
    /* `parameters`: the kernel's only argument, a structure that it takes by value */
    CudaError (*LaunchKernel)(CudaKernel *kernel, Launch launch, const void *parameters, CudaStream *stream);

    /* cuTensorMapEncodeTiled, for bfloat16 matrices described by TensorMapShape. */
    CudaError (*EncodeTensorMap)(TensorMap *map, const void *matrix, const TensorMapShape *shape);
} CudaRuntime;

extern const CudaRuntime *const cuda_runtime;
