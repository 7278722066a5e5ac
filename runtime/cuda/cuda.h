#pragma once

/* Internals of the CUDA device: two streams of one GPU, and the kernels of kernels/kernels.h. "cuda" computes in
   bfloat16 with sums in float; "cuda-fp32" computes in float, for comparison with the CPU. All calls of CUDA go through
   `cuda_runtime`. */

#include "base/arena.h"
#include "runtime/cuda/runtime.h"
#include "runtime/device/device.h"

#include <string.h>

typedef enum CudaType { CUDA_F32, CUDA_BF16, CUDA_TYPES } CudaType;

/* The kernels of a process. The first device of each CudaType loads the kernels that it uses; the last device that
   closes unloads all. */
typedef struct CudaModule {
    /* [kernel][element type]. A kernel that exists for one type only is in entry CUDA_F32. NULL: not loaded, because no
       device that was opened so far uses it */
    CudaKernel *kernels[CUDA_KERNELS][CUDA_TYPES];
    char names[CUDA_KERNELS][CUDA_TYPES][48];
} CudaModule;

struct DeviceEvent {
    CudaEvent *event;
};

/* Memory that stays allocated until the device is closed. */
typedef struct CudaKept {
    struct CudaKept *next;
    void *memory;
} CudaKept;

/* Scratch memory of one operation, or of a few consecutive ones; later operations reuse it. Bound lists point to it, so
   old memory stays valid when a larger block replaces it. */
typedef struct CudaScratch {
    void *memory;
    size_t bytes;
} CudaScratch;

/* A matrix as TMA reads it: the key of the cache of tensor maps. */
typedef struct CudaMatrix {
    const void *memory; /* NULL: none */
    TensorMapShape shape;
} CudaMatrix;
_Static_assert(sizeof(CudaMatrix) == 40, "no gaps: matrices are compared byte by byte");

typedef struct CudaMap {
    TensorMap map;
    CudaMatrix matrix;
} CudaMap;

enum { CUDA_MAPS = 4096 };

typedef struct CudaFusion CudaFusion; /* fusion.c */

typedef struct CudaDevice {
    Device device; /* first, so that a Device * of CUDA may be cast to a CudaDevice * */
    int index;
    CudaType type; /* of elements */
    CudaProperties properties;
    const CudaModule *module;
    CudaStream *streams[2]; /* by DeviceQueue */
    /* sums: partial sums of losses and norms. delta: for the backward of attention, which may run beside a loss in a
       fused launch and so needs memory of its own */
    CudaScratch sums, delta;
    CudaKept *kept;
    Arena arena; /* host memory that lives as long as the device */
    CudaFusion *fusion;
    /* [CUDA_MAPS], a cache of tensor maps: a hash table by matrix, in which a new matrix may replace another one */
    CudaMap *maps;
    bool library; /* a library (NCCL) transfers messages by its own kernels, which need multiprocessors */
    CudaEvent **marks;
    size_t mark_count;
} CudaDevice;

/* Converts CUDA's error code; the error names the failed call. */
Status cuda_status(CudaError code, const char *call, Error *error);
#define CUDA_TRY(call, ...) TRY(cuda_status(cuda_runtime->call(__VA_ARGS__), "cuda" #call, error))

/* --- module.c --- */
/* Loads the kernels that a device of `type` uses; other kernels of *module may be NULL. Each successful call needs a
   call of cuda_module_release later. */
Status cuda_module_take(const CudaProperties *gpu, int index, CudaType type, const CudaModule **module, Error *error);
void cuda_module_release(void);

/* An image that the build has embedded in the program: a source, or machine code if the build had nvcc. The list ends
   with a NULL `file`. */
typedef struct CudaImage {
    /* a source: its name without .cu; a header: its name; machine code: its unit, such as product.bf16 or hopper */
    const char *file;
    const char *architecture; /* sm_90a; NULL: it is a source, terminated by a 0 */
    const char *begin;
} CudaImage;
extern const CudaImage cuda_images[];

/* --- device.c --- */
/* The tables that dprun takes from the plug-in by these names. */
extern const DeviceTable device_cuda, device_cuda_fp32;
/* Uninitialised memory of the GPU. It is freed when the device is closed. */
Status cuda_keep(CudaDevice *cuda, size_t bytes, void **memory, Error *error);

/* A 16-bit hash of `bytes` bytes, a multiple of 8. */
static inline uint64_t cuda_hash(const void *words, size_t bytes)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)words + i, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    }
    return hash >> 48;
}

/* --- queues.c --- */
extern const DeviceAsync cuda_queues;
void cuda_free_marks(CudaDevice *cuda);

/* --- fusion.c --- */
extern const DeviceFusion cuda_fusion;
Status cuda_fusion_open(CudaDevice *cuda, Error *error);
/* How many multiprocessors a library that transfers messages may use: `share` of every `whole`; 0: one in 16. */
unsigned cuda_library_part(const CudaDevice *cuda, uint32_t share, uint32_t whole);
/* Whether a list is being bound. Then operations call cuda_fuse, which adds a kernel and its parameters to the table of
   the list, instead of cuda_launch. */
bool cuda_fusing(const CudaDevice *cuda);
Status cuda_fuse(CudaDevice *cuda, int kernel, const void *parameters, Error *error);

/* --- operations.c --- */
/* Launches a kernel in the compute stream, even while a list is being bound. */
Status cuda_launch(CudaDevice *cuda, int kernel, CudaType type, Launch launch, const void *parameters, Error *error);

/* The operations of operations.def, and functions of DeviceTable (device.h). */
#define CUDA(name) OPERATION_HEAD(cuda_##name, name)
#define OPERATION(name, OPERANDS) CUDA(name);
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"
Status cuda_copy_bytes(Device *, size_t, const void *, void *, Error *);
Status cuda_fill(Device *, NumberKind, size_t, double, void *, Error *);
Status cuda_accumulate(Device *, size_t, const void *, void *, Error *);
Status cuda_accumulate_on(Device *, DeviceQueue, size_t, const void *, void *, Error *);
Status cuda_sum_of_squares(Device *, size_t, const void *, double *, Error *);
Status cuda_adamw(Device *, const AdamW *, size_t, void *, void *, void *, void *, void *, Error *);
