/* Experts on the CPU: sorting rows by expert, products of each expert's rows, SwiGLU. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

CPU(permute)
{
    const size_t columns = op->kernel->shape.columns, k = op->kernel->shape.routing.chosen;
    const float *in = o->x;
    for (size_t t = 0; t < op->kernel->shape.rows; t++, in += columns)
        for (size_t j = 0; j < k; j++)
            memcpy((float *)o->y + (size_t)o->places[t * k + j] * columns, in, columns * sizeof *in);
    return STATUS_OK;
}

CPU(unpermute)
{
    const size_t columns = op->kernel->shape.columns, k = op->kernel->shape.routing.chosen;
    const float *gate = o->gates, *base = o->residual;
    float *restrict out = o->y;
    for (size_t t = 0; t < op->kernel->shape.rows; t++, out += columns) {
        if (base)
            memcpy(out, base + t * columns, columns * sizeof *out);
        else
            memset(out, 0, columns * sizeof *out);
        for (size_t j = 0; j < k; j++) {
            const float *restrict row = (const float *)o->x + (size_t)o->places[t * k + j] * columns;
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

CPU(unpermute_backward)
{
    const size_t columns = op->kernel->shape.columns, k = op->kernel->shape.routing.chosen;
    const float *gate = o->gates, *restrict d = o->dy;
    for (size_t t = 0; t < op->kernel->shape.rows; t++, d += columns)
        for (size_t j = 0; j < k; j++) {
            const size_t place = (size_t)o->places[t * k + j] * columns;
            float *restrict out = (float *)o->dx + place;
            ((float *)o->dgates)[t * k + j] = dot(columns, d, (const float *)o->x + place);
            for (size_t c = 0; c < columns; c++)
                out[c] = gate[t * k + j] * d[c];
        }
    return STATUS_OK;
}

/* A block of rows of one expert, and the weight matrix of that expert. */
typedef struct Group {
    size_t rows, first, weights; /* first: its first row; weights: offset of its matrix in elements */
} Group;

static Group group_of(const KernelShape *shape, const int32_t *begins, size_t block)
{
    return (Group){.rows = (size_t)(begins[block + 1] - begins[block]),
                   .first = (size_t)begins[block],
                   .weights = block % shape->routing.experts * shape->columns * shape->outputs};
}

/* Loops over the blocks that have rows. Each block is a matrix product of its own, so its result is the same to the bit
   whatever rows come from other sources. */
#define EACH_GROUP(shape, begins, group)                            \
    for (size_t block_ = 0; block_ < shape_blocks(shape); block_++) \
        for (Group group = group_of(shape, begins, block_); group.rows; group.rows = 0)

/* y = x w, or y = x w^T if `transpose`. Each row uses the matrix of its expert. */
static Status product_of_rows(CpuDevice *cpu, const KernelShape *shape, const int32_t *begins, bool transpose,
                              const float *x, const float *w, float *y, Error *error)
{
    const size_t from = transpose ? shape->outputs : shape->columns, to = transpose ? shape->columns : shape->outputs;
    EACH_GROUP(shape, begins, group)
    TRY(cpu_product(cpu, &(Product){.transpose_b = transpose, .m = group.rows, .n = to, .k = from, .alpha = 1},
                    x + group.first * from, w + group.weights, y + group.first * to, error));
    return STATUS_OK;
}

CPU(grouped_forward)
{
    return product_of_rows((CpuDevice *)device, &op->kernel->shape, o->begins, false, o->x, o->w, o->y, error);
}

CPU(grouped_backward_input)
{
    return product_of_rows((CpuDevice *)device, &op->kernel->shape, o->begins, true, o->dy, o->w, o->dx, error);
}

CPU(grouped_backward_weight)
{
    const KernelShape *shape = &op->kernel->shape;
    EACH_GROUP(shape, o->begins, group)
    TRY(cpu_product(
        (CpuDevice *)device,
        &(Product){
            .transpose_a = true, .m = shape->columns, .n = shape->outputs, .k = group.rows, .alpha = 1, .beta = 1},
        (const float *)o->x + group.first * shape->columns, (const float *)o->dy + group.first * shape->outputs,
        (float *)o->dw + group.weights, error));
    return STATUS_OK;
}

CPU(swiglu_forward)
{
    const size_t columns = op->kernel->shape.columns, rows = shape_rows(&op->kernel->shape, o->begins);
    const float *restrict in = o->x;
    float *restrict out = o->y;
    for (size_t i = 0; i < rows; i++, in += 2 * columns, out += columns)
        for (size_t c = 0; c < columns; c++)
            out[c] = in[c] / (1 + expf(-in[c])) * in[columns + c];
    return STATUS_OK;
}

CPU(swiglu_backward)
{
    const size_t columns = op->kernel->shape.columns, rows = shape_rows(&op->kernel->shape, o->begins);
    const float *restrict in = o->x, *restrict d = o->dy;
    float *restrict out = o->dx;
    for (size_t i = 0; i < rows; i++, in += 2 * columns, out += 2 * columns, d += columns)
        for (size_t c = 0; c < columns; c++) {
            const float sigmoid = 1 / (1 + expf(-in[c])), silu = in[c] * sigmoid;
            out[c] = d[c] * in[columns + c] * (sigmoid + silu * (1 - sigmoid));
            out[columns + c] = d[c] * silu;
        }
    return STATUS_OK;
}
