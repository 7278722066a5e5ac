#pragma once

/* Runs one operation at once, on given memory: RUN_OP(device, &error, linear_forward, with_kernel(kernel), x, w, bias,
   NULL, y). */

#include "runtime/device/operation.h"

static inline Op with_kernel(const Kernel *kernel) { return (Op){.kernel = kernel}; }
static inline Op with_gelu(const Kernel *kernel, const Kernel *gelu) { return (Op){.kernel = kernel, .gelu = gelu}; }
static inline Op with_scale(const Kernel *kernel, double scale) { return (Op){.kernel = kernel, .scale = scale}; }
static inline Op with_count(size_t count) { return (Op){.count = count}; }
static inline Op with_count_and_scale(size_t count, double scale) { return (Op){.count = count, .scale = scale}; }
static inline Op with_table(size_t rows, size_t columns, size_t sequence)
{
    return (Op){.rows = rows, .columns = columns, .sequence = sequence};
}

static inline Status run_op(Device *device, OpKind kind, Op op, const OpMemory *memory, Error *error)
{
    op.kind = kind;
    return op_run_one(device, &op, memory, error);
}

#define RUN_OP(device, error, name, shape, ...) \
    run_op(device, OPERATION_##name, shape, &(OpMemory){.name = {__VA_ARGS__}}, error)
