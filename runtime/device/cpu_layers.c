/* Linear layers, GELU and cross-entropy on the CPU. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

static const Primitive *primitive_of(const Kernel *kernel, int which)
{
    return &((const CpuKernel *)kernel)->primitives[which];
}

/* Initializes y with the bias and the residual; the product is added to it. */
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

Status cpu_linear_forward(Device *device, const Kernel *linear, const void *x, const void *w, const void *bias,
                          const void *residual, void *y, Error *error)
{
    const KernelShape *shape = &linear->shape;
    const bool start = bias || residual;
    if (start)
        start_from(shape->rows, shape->outputs, bias, residual, y);
    return cpu_product((CpuDevice *)device,
                       &(Product){.m = shape->rows,
                                  .n = shape->outputs,
                                  .k = shape->columns,
                                  .a_pitch = shape->columns,
                                  .b_pitch = shape->outputs,
                                  .c_pitch = shape->outputs,
                                  .alpha = 1,
                                  .beta = start ? 1 : 0},
                       x, w, y, error);
}

Status cpu_linear_backward_input(Device *device, const Kernel *linear, const void *dy, const void *w, void *dx,
                                 Error *error)
{
    const KernelShape *shape = &linear->shape;
    return cpu_product((CpuDevice *)device,
                       &(Product){.transpose_b = true,
                                  .m = shape->rows,
                                  .n = shape->columns,
                                  .k = shape->outputs,
                                  .a_pitch = shape->outputs,
                                  .b_pitch = shape->outputs,
                                  .c_pitch = shape->columns,
                                  .alpha = 1},
                       dy, w, dx, error);
}

Status cpu_linear_backward_weight(Device *device, const Kernel *linear, const void *x, const void *dy, void *dw,
                                  void *dbias, Error *error)
{
    const KernelShape *shape = &linear->shape;
    for (size_t i = 0; dbias && i < shape->rows; i++)
        TRY(cpu_accumulate(device, shape->outputs, (const float *)dy + i * shape->outputs, dbias, error));
    return cpu_product((CpuDevice *)device,
                       &(Product){.transpose_a = true,
                                  .m = shape->columns,
                                  .n = shape->outputs,
                                  .k = shape->rows,
                                  .a_pitch = shape->columns,
                                  .b_pitch = shape->outputs,
                                  .c_pitch = shape->outputs,
                                  .alpha = 1,
                                  .beta = 1},
                       x, dy, dw, error);
}

Status cpu_gelu_forward(Device *device, const Kernel *gelu, const void *x, void *y, Error *error)
{
    return cpu_run((CpuDevice *)device, primitive_of(gelu, PRIMITIVE_FORWARD), (const void *[]){x, y}, error);
}

Status cpu_gelu_backward(Device *device, const Kernel *gelu, const void *x, const void *dy, void *dx, Error *error)
{
    return cpu_run((CpuDevice *)device, primitive_of(gelu, PRIMITIVE_BACKWARD), (const void *[]){x, dy, dx}, error);
}

Status cpu_linear_gelu_forward(Device *device, const Kernel *linear, const Kernel *gelu, const void *x, const void *w,
                               const void *bias, void *y, void *active, Error *error)
{
    TRY(cpu_linear_forward(device, linear, x, w, bias, NULL, y, error));
    return cpu_gelu_forward(device, gelu, y, active, error);
}

Status cpu_linear_gelu_backward_input(Device *device, const Kernel *linear, const Kernel *gelu, const void *dy,
                                      const void *w, const void *before, void *dx, Error *error)
{
    TRY(cpu_linear_backward_input(device, linear, dy, w, dx, error));
    return cpu_gelu_backward(device, gelu, before, dx, dx, error);
}

/* In lanes, so that the compiler uses vector instructions. */
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
Status cpu_cross_entropy(Device *device, const Kernel *kernel, double scale, const int32_t *targets, void *logits,
                         double *loss, Error *error)
{
    CpuDevice *cpu = (CpuDevice *)device;
    const size_t rows = kernel->shape.rows, columns = kernel->shape.columns;
    float *margin = cpu->scratch.memory;
    for (size_t i = 0; i < rows; i++) {
        const float *row = (const float *)logits + i * columns;
        margin[i] = largest_of(columns, row) - row[targets[i]];
    }
    TRY(cpu_run(cpu, primitive_of(kernel, PRIMITIVE_FORWARD), (const void *[]){logits, logits}, error));
    const float factor = (float)(scale / (double)rows);
    double total = 0;
    for (size_t i = 0; i < rows; i++) {
        float *row = (float *)logits + i * columns;
        total += (double)margin[i] - log((double)largest_of(columns, row));
        row[targets[i]] -= 1;
        for (size_t j = 0; j < columns; j++)
            row[j] *= factor;
    }
    *loss = total / (double)rows;
    return STATUS_OK;
}
