/* Experts on the CPU: sorting rows by expert, products of each expert's rows, SwiGLU. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

Status cpu_permute(Device *device, const Kernel *kernel, const void *x, const int32_t *places, void *y, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, k = kernel->shape.routing.chosen;
    const float *in = x;
    for (size_t t = 0; t < kernel->shape.rows; t++, in += columns)
        for (size_t j = 0; j < k; j++)
            memcpy((float *)y + (size_t)places[t * k + j] * columns, in, columns * sizeof *in);
    return STATUS_OK;
}

Status cpu_unpermute(Device *device, const Kernel *kernel, const void *x, const int32_t *places, const void *gates,
                     const void *residual, void *y, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, k = kernel->shape.routing.chosen;
    const float *gate = gates, *base = residual;
    float *restrict out = y;
    for (size_t t = 0; t < kernel->shape.rows; t++, out += columns) {
        if (base)
            memcpy(out, base + t * columns, columns * sizeof *out);
        else
            memset(out, 0, columns * sizeof *out);
        for (size_t j = 0; j < k; j++) {
            const float *restrict row = (const float *)x + (size_t)places[t * k + j] * columns;
            const float weight = gate ? gate[t * k + j] : 1;
            for (size_t c = 0; c < columns; c++)
                out[c] += weight * row[c];
        }
    }
    return STATUS_OK;
}

/* Sums in lanes, as in cpu_norm.c. */
static float dot(size_t count, const float *a, const float *b)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += a[i + l] * b[i + l];
    for (size_t l = 0; i < count; i++, l++)
        lanes[l] += a[i] * b[i];
    for (size_t l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

Status cpu_unpermute_backward(Device *device, const Kernel *kernel, const void *x, const int32_t *places,
                              const void *gates, const void *dy, void *dx, void *dgates, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, k = kernel->shape.routing.chosen;
    const float *gate = gates, *restrict d = dy;
    for (size_t t = 0; t < kernel->shape.rows; t++, d += columns)
        for (size_t j = 0; j < k; j++) {
            const size_t place = (size_t)places[t * k + j] * columns;
            float *restrict out = (float *)dx + place;
            ((float *)dgates)[t * k + j] = dot(columns, d, (const float *)x + place);
            for (size_t c = 0; c < columns; c++)
                out[c] = gate[t * k + j] * d[c];
        }
    return STATUS_OK;
}

/* A block of rows and the weight matrix of its expert. */
typedef struct Group {
    size_t rows, first, weights; /* first: its first row; weights: offset of its matrix in elements */
} Group;

static size_t blocks_of(const KernelShape *shape)
{
    return shape->routing.experts * (shape->sources ? shape->sources : 1);
}

static Group group_of(const KernelShape *shape, const int32_t *begins, size_t block)
{
    return (Group){.rows = (size_t)(begins[block + 1] - begins[block]),
                   .first = (size_t)begins[block],
                   .weights = block % shape->routing.experts * shape->columns * shape->outputs};
}

/* Skips blocks without rows. Each block is a product of its own, so its bits do not depend on the other sources. */
#define EACH_GROUP(shape, begins, group)                         \
    for (size_t block_ = 0; block_ < blocks_of(shape); block_++) \
        for (Group group = group_of(shape, begins, block_); group.rows; group.rows = 0)

Status cpu_grouped_forward(Device *device, const Kernel *kernel, const void *x, const void *w, const int32_t *begins,
                           void *y, Error *error)
{
    const KernelShape *shape = &kernel->shape;
    EACH_GROUP(shape, begins, group)
    TRY(cpu_product((CpuDevice *)device,
                    &(Product){.m = group.rows,
                               .n = shape->outputs,
                               .k = shape->columns,
                               .a_pitch = shape->columns,
                               .b_pitch = shape->outputs,
                               .c_pitch = shape->outputs,
                               .alpha = 1},
                    (const float *)x + group.first * shape->columns, (const float *)w + group.weights,
                    (float *)y + group.first * shape->outputs, error));
    return STATUS_OK;
}

Status cpu_grouped_backward_input(Device *device, const Kernel *kernel, const void *dy, const void *w,
                                  const int32_t *begins, void *dx, Error *error)
{
    const KernelShape *shape = &kernel->shape;
    EACH_GROUP(shape, begins, group)
    TRY(cpu_product((CpuDevice *)device,
                    &(Product){.transpose_b = true,
                               .m = group.rows,
                               .n = shape->columns,
                               .k = shape->outputs,
                               .a_pitch = shape->outputs,
                               .b_pitch = shape->outputs,
                               .c_pitch = shape->columns,
                               .alpha = 1},
                    (const float *)dy + group.first * shape->outputs, (const float *)w + group.weights,
                    (float *)dx + group.first * shape->columns, error));
    return STATUS_OK;
}

Status cpu_grouped_backward_weight(Device *device, const Kernel *kernel, const void *x, const void *dy,
                                   const int32_t *begins, void *dw, Error *error)
{
    const KernelShape *shape = &kernel->shape;
    EACH_GROUP(shape, begins, group)
    TRY(cpu_product((CpuDevice *)device,
                    &(Product){.transpose_a = true,
                               .m = shape->columns,
                               .n = shape->outputs,
                               .k = group.rows,
                               .a_pitch = shape->columns,
                               .b_pitch = shape->outputs,
                               .c_pitch = shape->outputs,
                               .alpha = 1,
                               .beta = 1},
                    (const float *)x + group.first * shape->columns, (const float *)dy + group.first * shape->outputs,
                    (float *)dw + group.weights, error));
    return STATUS_OK;
}

static size_t rows_of(const KernelShape *shape, const int32_t *begins)
{
    return begins ? (size_t)begins[blocks_of(shape)] : shape->rows;
}

Status cpu_swiglu_forward(Device *device, const Kernel *kernel, const void *x, const int32_t *begins, void *y,
                          Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, rows = rows_of(&kernel->shape, begins);
    const float *restrict in = x;
    float *restrict out = y;
    for (size_t i = 0; i < rows; i++, in += 2 * columns, out += columns)
        for (size_t c = 0; c < columns; c++)
            out[c] = in[c] / (1 + expf(-in[c])) * in[columns + c];
    return STATUS_OK;
}

Status cpu_swiglu_backward(Device *device, const Kernel *kernel, const void *x, const void *dy, const int32_t *begins,
                           void *dx, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, rows = rows_of(&kernel->shape, begins);
    const float *restrict in = x, *restrict d = dy;
    float *restrict out = dx;
    for (size_t i = 0; i < rows; i++, in += 2 * columns, out += 2 * columns, d += columns)
        for (size_t c = 0; c < columns; c++) {
            const float sigmoid = 1 / (1 + expf(-in[c])), silu = in[c] * sigmoid;
            out[c] = d[c] * in[columns + c] * (sigmoid + silu * (1 - sigmoid));
            out[columns + c] = d[c] * silu;
        }
    return STATUS_OK;
}
