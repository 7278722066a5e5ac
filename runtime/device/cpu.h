#pragma once

/* Internals of the CPU device. It computes in float32. oneDNN's generated kernels do matrix products, GELU, and the
   softmax of attention and of the cross-entropy. Plain loops do the rest; most of it is bound by memory. */

#include "runtime/device/cpu_dnnl.h"
#include "runtime/device/device.h"
#include "runtime/device/group.h"

/* A oneDNN primitive with the memory objects of its arguments. The memory objects get their addresses when the
   primitive runs. */
enum { PRIMITIVE_ARGUMENTS = 4 };
typedef struct Primitive {
    dnnl_primitive_t primitive;
    int argument_count, data_count; /* data_count: without the scratchpad; if there is one, it is the last argument */
    dnnl_exec_arg_t arguments[PRIMITIVE_ARGUMENTS];
} Primitive;

typedef struct Buffer {
    float *memory;
    size_t bytes;
} Buffer;

typedef struct CpuDevice {
    Device device; /* first, so that a Device * of the CPU may be cast to a CpuDevice * */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Buffer scratchpad; /* used by oneDNN for one primitive at a time */
    Buffer scratch;    /* used by one operation at a time: a device runs one list at a time, in one thread */
} CpuDevice;

typedef struct CpuKernel {
    Kernel kernel; /* first, for the cast to a CpuKernel * */
    size_t primitive_count;
    Primitive primitives[];
} CpuKernel;

/* Indices in CpuKernel.primitives. An attention kernel has one softmax primitive for each block of rows instead. */
enum { PRIMITIVE_FORWARD, PRIMITIVE_BACKWARD };

/* --- cpu.c --- */
/* Makes a buffer at least `bytes` large. If it has to grow, its content is lost. */
Status cpu_reserve(Buffer *buffer, size_t bytes, Error *error);

/* --- cpu_library.c: the use of oneDNN --- */
Status cpu_gelu_primitives(CpuDevice *cpu, size_t count, Primitive *forward, Primitive *backward, Error *error);
Status cpu_softmax_primitive(CpuDevice *cpu, size_t rows, size_t columns, Primitive *forward, Error *error);
/* Runs a primitive. data: the addresses of its arguments without the scratchpad, in the order in which cpu_library.c
   lists their names. */
Status cpu_run(CpuDevice *cpu, const Primitive *primitive, const void *const *data, Error *error);
void cpu_free_primitive(Primitive *primitive);

/* c[m, n] = alpha a b + beta c. a is [m, k], or [k, m] if `transpose_a`; b is [k, n], or [n, k] if `transpose_b`. The
   rows of a matrix follow each other without gaps. */
typedef struct Product {
    bool transpose_a, transpose_b;
    size_t m, n, k;
    float alpha, beta;
} Product;
Status cpu_product(CpuDevice *cpu, const Product *product, const float *a, const float *b, float *c, Error *error);

/* --- cpu_attention.c --- */
/* Sizes of an attention kernel. blocks: into how many blocks the rows of a sequence are divided. context, scratch: the
   number of floats in the context of a microbatch and in scratch memory. */
typedef struct AttentionPlan {
    size_t blocks, context, scratch;
} AttentionPlan;
AttentionPlan cpu_attention_plan(const KernelShape *shape);
Status cpu_attention_primitives(CpuDevice *cpu, const KernelShape *shape, Primitive *primitives, Error *error);

/* --- cpu_experts.c --- */
/* Elements of scratch that a kernel of grouped products needs. */
size_t cpu_grouped_scratch(const KernelShape *shape);

/* --- cpu_router.c --- */
/* Elements of scratch that a router's kernel needs. */
size_t cpu_router_scratch(const KernelShape *shape);

/* --- the operations of operations.def, and functions of DeviceTable (device.h) --- */
#define CPU(name) OPERATION_HEAD(cpu_##name, name)
#define OPERATION(name, OPERANDS) CPU(name);
#define GROUP_OPERATION(name, OPERANDS)
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"
Status cpu_fill(Device *, NumberKind, size_t, double, void *, Error *);
Status cpu_accumulate(Device *, size_t, const void *, void *, Error *);
Status cpu_sum_of_squares(Device *, size_t, const void *, double *, Error *);
Status cpu_adamw(Device *, const AdamW *, size_t, void *, void *, void *, void *, void *, Error *);
