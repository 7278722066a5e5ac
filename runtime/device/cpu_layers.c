/* Linear layers, GELU and cross-entropy on the CPU. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

static Status run(Device *device, const Kernel *kernel, int primitive, const void *const *data, Error *error)
{
    return cpu_run((CpuDevice *)device, &((const CpuKernel *)kernel)->primitives[primitive], data, error);
}

/* Sets y to residual + bias; one of them may be NULL, which counts as zeros. The caller then adds the matrix product to
   y. */
static void start_from(size_t rows, size_t columns, const float *bias, const float *residual, float *y)
{
    for (size_t i = 0; i < rows; i++, y += columns) {
        const float *base = residual ? residual + i * columns : bias;
        if (residual && bias)
            for (size_t j = 0; j < columns; j++)
                y[j] = base[j] + bias[j];
        else
            memcpy(y, base, columns * sizeof *y);
    }
}

CPU(linear_forward)
{
    const KernelShape *shape = &op->kernel->shape;
    const bool start = o->bias || o->residual;
    if (start)
        start_from(shape->rows, shape->outputs, o->bias, o->residual, o->y);
    return cpu_product(
        (CpuDevice *)device,
        &(Product){.m = shape->rows, .n = shape->outputs, .k = shape->columns, .alpha = 1, .beta = start ? 1 : 0}, o->x,
        o->w, o->y, error);
}

CPU(linear_backward_input)
{
    const KernelShape *shape = &op->kernel->shape;
    return cpu_product(
        (CpuDevice *)device,
        &(Product){.transpose_b = true, .m = shape->rows, .n = shape->columns, .k = shape->outputs, .alpha = 1}, o->dy,
        o->w, o->dx, error);
}

CPU(linear_backward_weight)
{
    const KernelShape *shape = &op->kernel->shape;
    for (size_t i = 0; o->dbias && i < shape->rows; i++)
        TRY(cpu_accumulate(device, shape->outputs, (const float *)o->dy + i * shape->outputs, o->dbias, error));
    return cpu_product(
        (CpuDevice *)device,
        &(Product){
            .transpose_a = true, .m = shape->columns, .n = shape->outputs, .k = shape->rows, .alpha = 1, .beta = 1},
        o->x, o->dy, o->dw, error);
}

CPU(gelu_forward) { return run(device, op->kernel, PRIMITIVE_FORWARD, (const void *[]){o->x, o->y}, error); }

CPU(gelu_backward) { return run(device, op->kernel, PRIMITIVE_BACKWARD, (const void *[]){o->x, o->dy, o->dx}, error); }

CPU(linear_gelu_forward)
{
    TRY(cpu_linear_forward(device, op, &(struct linear_forward_operands){o->x, o->w, o->bias, NULL, o->y}, error));
    return run(device, op->gelu, PRIMITIVE_FORWARD, (const void *[]){o->y, o->active}, error);
}

CPU(linear_gelu_backward_input)
{
    TRY(cpu_linear_backward_input(device, op, &(struct linear_backward_input_operands){o->dy, o->w, o->dx}, error));
    return run(device, op->gelu, PRIMITIVE_BACKWARD, (const void *[]){o->before, o->dx, o->dx}, error);
}

/* The largest value. Eight lanes each keep the largest of their values, so that the compiler uses vector
   instructions. */
static float largest_of(size_t count, const float *values)
{
    enum { LANES = 8 };
    float lanes[LANES];
    for (size_t l = 0; l < LANES; l++)
        lanes[l] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] = values[i + l] > lanes[l] ? values[i + l] : lanes[l];
    for (; i < count; i++)
        lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
    float largest = lanes[0];
    for (size_t l = 1; l < LANES; l++)
        largest = lanes[l] > largest ? lanes[l] : largest;
    return largest;
}

/* -log softmax(z)[t] = (max z - z[t]) - log max softmax(z): finite however unlikely the target is. */
CPU(cross_entropy)
{
    const size_t rows = op->kernel->shape.rows, columns = op->kernel->shape.columns;
    float *margin = ((CpuDevice *)device)->scratch.memory;
    for (size_t i = 0; i < rows; i++) {
        const float *row = (const float *)o->logits + i * columns;
        margin[i] = largest_of(columns, row) - row[o->targets[i]];
    }
    TRY(run(device, op->kernel, PRIMITIVE_FORWARD, (const void *[]){o->logits, o->logits}, error));
    const float factor = (float)(op->scale / (double)rows);
    double total = 0;
    for (size_t i = 0; i < rows; i++) {
        float *row = (float *)o->logits + i * columns;
        total += (double)margin[i] - log((double)largest_of(columns, row));
        row[o->targets[i]] -= 1;
        for (size_t j = 0; j < columns; j++)
            row[j] *= factor;
    }
    *o->loss = total / (double)rows;
    return STATUS_OK;
}
