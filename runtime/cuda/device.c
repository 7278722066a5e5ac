/* Opens and closes the CUDA device, and manages its memory. */

#include "runtime/cuda/cuda.h"

#include "base/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Status cuda_status(CudaError code, const char *call, Error *error)
{
    if (code == CUDA_OK)
        return STATUS_OK;
    return error_set(error, STATUS_RUN_FAILED, "%s: %s (%u)", call, cuda_runtime->GetErrorString(code), code);
}

/* Most GPU memory that bound lists may take: enough for a few thousand F&Bs of several layers. */
enum { BOUND_MOST = 256 << 20 };

/* --- finding a GPU --- */

static Status describe_driver(CudaError code, Error *error)
{
    int driver = 0;
    if (cuda_runtime->DriverGetVersion(&driver) != CUDA_OK || driver == 0)
        return error_set(error, STATUS_RUN_FAILED, "no NVIDIA driver on this machine (libcuda.so.1 cannot be opened)");
    if (code == CUDA_DRIVER_TOO_OLD)
        return error_set(
            error, STATUS_RUN_FAILED,
            "the NVIDIA driver is too old: it is for CUDA %d.%d, but this program was built with CUDA %d.%d; "
            "update the driver",
            driver / 1000, driver % 1000 / 10, cuda_runtime->runtime_version / 1000,
            cuda_runtime->runtime_version % 1000 / 10);
    if (code != CUDA_OK)
        return error_set(error, STATUS_RUN_FAILED, "no GPU (cudaGetDeviceCount: %s)",
                         cuda_runtime->GetErrorString(code));
    return error_set(error, STATUS_RUN_FAILED, "no GPU (the NVIDIA driver for CUDA %d.%d is there and shows none)",
                     driver / 1000, driver % 1000 / 10);
}

/* Replaces `index` by its remainder modulo the number of visible GPUs, and reads that GPU's properties. The remainder
   is for launchers that show each process one GPU only: any index then means this GPU. */
static Status find(int *index, CudaProperties *properties, Error *error)
{
    int count = 0;
    const CudaError code = cuda_runtime->GetDeviceCount(&count);
    if (code != CUDA_OK || count < 1)
        return describe_driver(code, error);
    *index %= count;
    CUDA_TRY(GetDeviceProperties, properties, *index);
    if (properties->major < 8)
        return error_set(error, STATUS_RUN_FAILED,
                         "%s has compute capability %d.%d; 8.0 or more is needed, for bfloat16 and asynchronous copies",
                         properties->name, properties->major, properties->minor);
    return STATUS_OK;
}

static Status probe(Error *error)
{
    CudaProperties properties;
    int first = 0;
    return find(&first, &properties, error);
}

/* --- open and close --- */

static void close_cuda(Device *device)
{
    CudaDevice *cuda = (CudaDevice *)device;
    cuda_runtime->SetDevice(cuda->index);
    for (int queue = 0; queue < 2; queue++)
        if (cuda->streams[queue])
            cuda_runtime->StreamSynchronize(cuda->streams[queue]);
    cuda_free_marks(cuda);
    for (CudaKept *kept = cuda->kept; kept; kept = kept->next)
        cuda_runtime->Free(kept->memory);
    arena_free(&cuda->arena);
    for (int queue = 0; queue < 2; queue++)
        if (cuda->streams[queue])
            cuda_runtime->StreamDestroy(cuda->streams[queue]);
    if (cuda->module)
        cuda_module_release();
    free(cuda->maps);
    free(cuda);
}

static Status start(CudaDevice *cuda, Error *error)
{
    cuda->maps = aligned_alloc(_Alignof(CudaMap), CUDA_MAPS * sizeof *cuda->maps);
    if (!cuda->maps)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    memset(cuda->maps, 0, CUDA_MAPS * sizeof *cuda->maps);
    CUDA_TRY(SetDevice, cuda->index);
    CUDA_TRY(StreamCreate, &cuda->streams[QUEUE_COMPUTE], 0);
    CUDA_TRY(StreamCreate, &cuda->streams[QUEUE_MESSAGES], 1);
    TRY(cuda_fusion_open(cuda, error));
    return cuda_module_take(&cuda->properties, cuda->index, cuda->type, &cuda->module, error);
}

static Status open_cuda(int index, CudaType type, Device **opened, Error *error)
{
    CudaProperties properties;
    TRY(find(&index, &properties, error)); /* the first step: if it fails, nothing has to be undone */
    CudaDevice *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    cuda->index = index;
    cuda->type = type;
    cuda->device.bound_most = BOUND_MOST;
    cuda->properties = properties;
    const Status status = start(cuda, error);
    if (status != STATUS_OK) {
        close_cuda(&cuda->device);
        return status;
    }
    *opened = &cuda->device;
    return STATUS_OK;
}

static Status open_bf16(int index, Device **opened, Error *error) { return open_cuda(index, CUDA_BF16, opened, error); }

static Status open_fp32(int index, Device **opened, Error *error) { return open_cuda(index, CUDA_F32, opened, error); }

/* --- memory of operations --- */

enum { LEAST_BYTES = 256 };

static Status take(size_t bytes, void **memory, Error *error)
{
    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
    const CudaError code = cuda_runtime->Malloc(memory, bytes);
    if (code == CUDA_OUT_OF_MEMORY)
        return error_set(
            error, STATUS_RUN_FAILED,
            "out of memory on the GPU: cannot allocate %zu bytes; use smaller microbatches or a smaller model", bytes);
    return cuda_status(code, "cudaMalloc", error);
}

Status cuda_keep(CudaDevice *cuda, size_t bytes, void **memory, Error *error)
{
    CudaKept *kept = arena_allocate(&cuda->arena, sizeof *kept);
    if (!kept)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    TRY(take(bytes, &kept->memory, error));
    kept->next = cuda->kept;
    cuda->kept = kept;
    *memory = kept->memory;
    return STATUS_OK;
}

/* Enlarges the scratch memory to at least `bytes` bytes. Its old memory stays valid. */
static Status reserve(CudaDevice *cuda, CudaScratch *scratch, size_t bytes, Error *error)
{
    if (bytes <= scratch->bytes)
        return STATUS_OK;
    TRY(cuda_keep(cuda, bytes, &scratch->memory, error));
    scratch->bytes = bytes;
    return STATUS_OK;
}

/* --- kernels by shape: the context and scratch memory that each needs --- */

/* the kernels count rows and columns in 32 bits, and attention has three times the columns */
enum { COUNTED_MOST = UINT32_MAX / 4 };

static bool fits(size_t value) { return value <= COUNTED_MOST; }

static Status make_kernel(Device *device, const KernelShape *shape, Kernel **kernel, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    const size_t element = device->run->size[COMPUTE_TYPE];
    size_t context = 0;
    if (!fits(shape->rows) || !fits(shape->columns) || !fits(shape->outputs))
        return error_set(
            error, STATUS_RUN_FAILED,
            "%zu rows, %zu columns and %zu outputs are too many: a GPU kernel counts at most %d of each; use smaller "
            "microbatches or a smaller model",
            shape->rows, shape->columns, shape->outputs, COUNTED_MOST);
    switch (shape->kind) {
    case KERNEL_LINEAR:
    case KERNEL_GELU: break;
    case KERNEL_NORM: context = 2 * shape->rows * sizeof(float); break;
    case KERNEL_ATTENTION:
        if (shape->columns / shape->heads > ATTENTION_WIDTH)
            return error_set(error, STATUS_RUN_FAILED,
                             "attention heads of width %zu are too wide: a GPU kernel takes at most %d; make hidden "
                             "smaller or use more heads",
                             shape->columns / shape->heads, ATTENTION_WIDTH);
        context = shape->rows * shape->heads * sizeof(float);
        TRY(reserve(cuda, &cuda->delta, context, error));
        break;
    case KERNEL_CROSS_ENTROPY: TRY(reserve(cuda, &cuda->sums, shape->rows * sizeof(double), error)); break;
    case KERNEL_ROUTER:
    case KERNEL_PERMUTE:
    case KERNEL_GROUPED:
    case KERNEL_SWIGLU:
        return error_set(error, STATUS_BAD_USAGE,
                         "device %s has no kernels for layers with experts: run this model with --device cpu",
                         device->run->name);
    }
    *kernel = calloc(1, sizeof **kernel);
    if (!*kernel)
        return error_set(error, STATUS_RUN_FAILED, "out of memory on the host");
    (*kernel)->context = context / element;
    return STATUS_OK;
}

static void free_kernel(Device *device, Kernel *kernel)
{
    (void)device;
    free(kernel);
}

/* --- memory --- */

static void deallocate(Device *device, void *memory)
{
    CudaDevice *cuda = (CudaDevice *)device;
    cuda_runtime->SetDevice(cuda->index); /* the thread that frees may not be the one that computed */
    for (int queue = 0; queue < 2; queue++)
        cuda_runtime->StreamSynchronize(cuda->streams[queue]);
    if (memory)
        cuda_runtime->Free(memory);
}

static Status allocate(Device *device, size_t bytes, void **memory, Error *error)
{
    CudaDevice *cuda = (CudaDevice *)device;
    /* scratch memory for the partial sums of sum_of_squares and others over all of this block */
    TRY(reserve(cuda, &cuda->sums, sum_partials(bytes / sizeof(float)) * sizeof(double), error));
    TRY(take(bytes, memory, error));
    const Status status = cuda_status(cuda_runtime->MemsetAsync(*memory, 0, bytes, cuda->streams[QUEUE_COMPUTE]),
                                      "cudaMemsetAsync", error);
    if (status != STATUS_OK)
        deallocate(device, *memory);
    return status;
}

static Status copy_and_wait(Device *device, size_t bytes, const void *source, void *destination, Error *error)
{
    CUDA_TRY(MemcpyAsync, destination, source, bytes, ((CudaDevice *)device)->streams[QUEUE_COMPUTE]);
    CUDA_TRY(StreamSynchronize, ((CudaDevice *)device)->streams[QUEUE_COMPUTE]);
    return STATUS_OK;
}

/* Converts to bfloat16, the upper half of a float. Rounds to nearest, ties to even, as the kernels do. A NaN stays a
   NaN. */
static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float float_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

enum { PIECE = 16384 };

static bool is_float(const Device *device, NumberKind kind) { return device->run->size[kind] == sizeof(float); }

static Status load_floats(Device *device, NumberKind kind, size_t count, const float *source, void *destination,
                          Error *error)
{
    if (is_float(device, kind))
        return copy_and_wait(device, count * sizeof(float), source, destination, error);
    uint16_t piece[PIECE];
    for (size_t done = 0, length; done < count; done += length) {
        length = count - done < PIECE ? count - done : PIECE;
        for (size_t i = 0; i < length; i++)
            piece[i] = bf16_of(source[done + i]);
        TRY(copy_and_wait(device, length * sizeof *piece, piece, (uint16_t *)destination + done, error));
    }
    return STATUS_OK;
}

static Status store_floats(Device *device, NumberKind kind, size_t count, const void *source, float *destination,
                           Error *error)
{
    if (is_float(device, kind))
        return copy_and_wait(device, count * sizeof(float), source, destination, error);
    uint16_t piece[PIECE];
    for (size_t done = 0, length; done < count; done += length) {
        length = count - done < PIECE ? count - done : PIECE;
        TRY(copy_and_wait(device, length * sizeof *piece, (const uint16_t *)source + done, piece, error));
        for (size_t i = 0; i < length; i++)
            destination[done + i] = float_of(piece[i]);
    }
    return STATUS_OK;
}

#define CPU_OPERATION(operation, OPERANDS)                                                                             \
    case OPERATION_##operation:                                                                                        \
        return error_set(error, STATUS_RUN_FAILED,                                                                     \
                         "device %s has no kernel for the operation " #operation ": run this model with --device cpu", \
                         device->run->name);
#define OPERATION_FUNCTION(name) cuda_##name
#include "runtime/device/operate.h"

#define CUDA_TABLE(its_name, its_open, element)                                                                        \
    {                                                                                                                  \
        .name = its_name, .size = {element, sizeof(float)}, .async = &cuda_queues, .fusion = &cuda_fusion,             \
        .probe = probe, .open = its_open, .close = close_cuda, .make_kernel = make_kernel, .free_kernel = free_kernel, \
        .allocate = allocate, .deallocate = deallocate, .upload = copy_and_wait, .download = copy_and_wait,            \
        .load_floats = load_floats, .store_floats = store_floats, .operate = operate, .fill = cuda_fill,               \
        .copy = cuda_copy_bytes, .accumulate = cuda_accumulate, .sum_of_squares = cuda_sum_of_squares,                 \
        .adamw = cuda_adamw,                                                                                           \
    }

DEFINE_PLUGIN

const DeviceTable device_cuda = CUDA_TABLE("cuda", open_bf16, 2);
const DeviceTable device_cuda_fp32 = CUDA_TABLE("cuda-fp32", open_fp32, 4);
