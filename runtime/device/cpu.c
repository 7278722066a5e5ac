#include "runtime/device/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 };

static float *cache_lines(size_t bytes)
{
    if (bytes > SIZE_MAX - CACHE_LINE)
        return NULL;
    const size_t whole = (bytes + CACHE_LINE) / CACHE_LINE * CACHE_LINE;
    float *memory = aligned_alloc(CACHE_LINE, whole);
    if (memory)
        memset(memory, 0, whole);
    return memory;
}

static Status no_memory(size_t bytes, Error *error)
{
    return error_set(error, STATUS_RUN_FAILED, "no memory for %zu bytes", bytes);
}

Status cpu_reserve(Buffer *buffer, size_t bytes, Error *error)
{
    if (bytes <= buffer->bytes)
        return STATUS_OK;
    free(buffer->memory);
    buffer->memory = cache_lines(bytes);
    buffer->bytes = buffer->memory ? bytes : 0;
    return buffer->memory ? STATUS_OK : no_memory(bytes, error);
}

static void close_cpu(Device *device)
{
    CpuDevice *cpu = (CpuDevice *)device;
    if (cpu->stream)
        dnnl_stream_destroy(cpu->stream);
    if (cpu->engine)
        dnnl_engine_destroy(cpu->engine);
    free(cpu->scratchpad.memory);
    free(cpu->scratch.memory);
    free(cpu);
}

static Status open_cpu(int index, Device **opened, Error *error)
{
    (void)index;
    CpuDevice *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return no_memory(sizeof *cpu, error);
    if (dnnl_engine_create(&cpu->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags) != dnnl_success) {
        close_cpu(&cpu->device);
        return error_set(error, STATUS_RUN_FAILED,
                         "oneDNN does not start on this CPU: use another machine, or a GPU with --device cuda");
    }
    *opened = &cpu->device;
    return STATUS_OK;
}

static void free_kernel(Device *device, Kernel *kernel)
{
    (void)device;
    CpuKernel *made = (CpuKernel *)kernel;
    for (size_t i = 0; i < made->primitive_count; i++)
        cpu_free_primitive(&made->primitives[i]);
    free(made);
}

static Status make_primitives(CpuDevice *cpu, const KernelShape *shape, CpuKernel *kernel, Error *error)
{
    Primitive *forward = &kernel->primitives[PRIMITIVE_FORWARD], *backward = &kernel->primitives[PRIMITIVE_BACKWARD];
    switch (shape->kind) {
    case KERNEL_LINEAR:
    case KERNEL_NORM:
    case KERNEL_PERMUTE:
    case KERNEL_SWIGLU: return STATUS_OK;
    case KERNEL_GROUPED: return cpu_reserve(&cpu->scratch, cpu_grouped_scratch(shape) * sizeof(float), error);
    case KERNEL_ROUTER: return cpu_reserve(&cpu->scratch, cpu_router_scratch(shape) * sizeof(float), error);
    case KERNEL_GELU: return cpu_gelu_primitives(cpu, shape->rows * shape->columns, forward, backward, error);
    case KERNEL_ATTENTION: return cpu_attention_primitives(cpu, shape, kernel->primitives, error);
    case KERNEL_CROSS_ENTROPY:
        TRY(cpu_reserve(&cpu->scratch, shape->rows * sizeof(float), error));
        return cpu_softmax_primitive(cpu, shape->rows, shape->columns, forward, error);
    }
    return error_set(error, STATUS_RUN_FAILED, "internal error, no kernel of kind %d", (int)shape->kind);
}

static Status make_kernel(Device *device, const KernelShape *shape, Kernel **kernel, Error *error)
{
    AttentionPlan plan = {.blocks = 2};
    if (shape->kind == KERNEL_ATTENTION)
        plan = cpu_attention_plan(shape);
    CpuDevice *cpu = (CpuDevice *)device;
    TRY(cpu_reserve(&cpu->scratch, plan.scratch * sizeof(float), error));
    CpuKernel *made = calloc(1, sizeof *made + plan.blocks * sizeof *made->primitives);
    if (!made)
        return no_memory(sizeof *made, error);
    made->primitive_count = plan.blocks;
    made->kernel.context = shape->kind == KERNEL_NORM ? 2 * shape->rows : plan.context;
    const Status status = make_primitives(cpu, shape, made, error);
    if (status != STATUS_OK) {
        free_kernel(device, &made->kernel);
        return status;
    }
    *kernel = &made->kernel;
    return STATUS_OK;
}

static Status allocate(Device *device, size_t bytes, void **memory, Error *error)
{
    (void)device;
    *memory = cache_lines(bytes);
    return *memory ? STATUS_OK : no_memory(bytes, error);
}

static void deallocate(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

static Status copy(Device *device, size_t bytes, const void *source, void *destination, Error *error)
{
    (void)device, (void)error;
    memcpy(destination, source, bytes);
    return STATUS_OK;
}

static Status load_floats(Device *device, NumberKind kind, size_t count, const float *source, void *destination,
                          Error *error)
{
    (void)kind;
    return copy(device, count * sizeof(float), source, destination, error);
}

static Status store_floats(Device *device, NumberKind kind, size_t count, const void *source, float *destination,
                           Error *error)
{
    (void)kind;
    return copy(device, count * sizeof(float), source, destination, error);
}

#define OPERATION_FUNCTION(name) cpu_##name
#include "runtime/device/operate.h"

const DeviceTable device_cpu = {
    .name = "cpu",
    .size = {sizeof(float), sizeof(float)},
    .open = open_cpu,
    .close = close_cpu,
    .make_kernel = make_kernel,
    .free_kernel = free_kernel,
    .allocate = allocate,
    .deallocate = deallocate,
    .upload = copy,
    .download = copy,
    .load_floats = load_floats,
    .store_floats = store_floats,
    .operate = operate,
    .fill = cpu_fill,
    .copy = copy,
    .accumulate = cpu_accumulate,
    .sum_of_squares = cpu_sum_of_squares,
    .adamw = cpu_adamw,
};
