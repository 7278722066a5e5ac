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

/* The dot product. It is summed in a fixed number of lanes, so that the order of the additions does not depend on the
   compiler. */
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
    size_t rows, first, weights; /* first: index of the first row; weights: offset of the matrix, in elements */
} Group;

static Group group_of(const KernelShape *shape, const int32_t *begins, size_t block)
{
    return (Group){.rows = (size_t)(begins[block + 1] - begins[block]),
                   .first = (size_t)begins[block],
                   .weights = block % shape->routing.experts * shape->columns * shape->outputs};
}

/* Loops over the blocks that have rows. Each block is a matrix product of its own, so the bits of its result do not
   depend on the rows that other members of an expert group send. */
#define EACH_GROUP(shape, begins, group)                            \
    for (size_t block_ = 0; block_ < shape_blocks(shape); block_++) \
        for (Group group = group_of(shape, begins, block_); group.rows; group.rows = 0)

/* y = x w; w is the matrix of the row's expert. */
CPU(grouped_forward)
{
    const KernelShape *shape = &op->kernel->shape;
    const size_t in = shape->columns, out = shape->outputs;
    EACH_GROUP(shape, o->begins, group)
    TRY(cpu_product((CpuDevice *)device, &(Product){.m = group.rows, .n = out, .k = in, .alpha = 1},
                    (const float *)o->x + group.first * in, (const float *)o->w + group.weights,
                    (float *)o->y + group.first * out, error));
    return STATUS_OK;
}

enum { LEAST_ROWS = 16, MOST_ROWS = 128 };

/* Whether transposed_product computes dx = dy w^T for the `rows` rows of one expert. If oneDNN 2.6 transposes w itself,
   it is slow for such numbers of rows where dx has few columns, or where sums are long and w does not stay in the
   second-level cache (docs/decisions/onednn.md). */
static bool transposes(size_t rows, size_t in, size_t out)
{
    enum { FEW_COLUMNS = 96, LEAST_SUMMED = 256, CACHED_ELEMENTS = 65536 };
    return rows >= LEAST_ROWS && rows <= MOST_ROWS &&
           (in <= FEW_COLUMNS || (out >= LEAST_SUMMED && in * out > CACHED_ELEMENTS));
}

/* The most elements of scratch that transposed_product uses. */
size_t cpu_grouped_scratch(const KernelShape *shape) { return MOST_ROWS * (shape->columns + shape->outputs); }

/* to = from^T. rows, columns: of `from`. */
static void transpose(size_t rows, size_t columns, const float *restrict from, float *restrict to)
{
    enum { STRIP = 8 }; /* rows that are transposed at once, so that whole vectors are written */
    size_t i = 0;
    for (; i + STRIP <= rows; i += STRIP)
        for (size_t j = 0; j < columns; j++)
            for (size_t s = 0; s < STRIP; s++)
                to[j * rows + i + s] = from[(i + s) * columns + j];
    for (; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            to[j * rows + i] = from[i * columns + j];
}

/* Prefetches the input of `transpose`: its strips are too short for the processor to prefetch the next one itself. */
static void prefetch(const float *memory, size_t count)
{
    enum { LINE = 16 };
    for (size_t i = 0; i < count; i += LINE)
        __builtin_prefetch(memory + i);
}

/* Computes dx = dy w^T from a transposed copy of w, or dx^T = w dy^T from a transposed copy of dy and then transposes
   the result. Chooses the way that transposes fewer elements. */
static Status transposed_product(CpuDevice *cpu, size_t rows, size_t in, size_t out, const float *dy, const float *w,
                                 float *dx, Error *error)
{
    float *scratch = cpu->scratch.memory, *dx_transposed = scratch + rows * out;
    if (in * out <= rows * (in + out)) {
        prefetch(w, in * out);
        transpose(in, out, w, scratch);
        return cpu_product(cpu, &(Product){.m = rows, .n = in, .k = out, .alpha = 1}, dy, scratch, dx, error);
    }
    transpose(rows, out, dy, scratch);
    TRY(cpu_product(cpu, &(Product){.m = in, .n = rows, .k = out, .alpha = 1}, w, scratch, dx_transposed, error));
    transpose(in, rows, dx_transposed, dx);
    return STATUS_OK;
}

CPU(grouped_backward_input)
{
    CpuDevice *cpu = (CpuDevice *)device;
    const KernelShape *shape = &op->kernel->shape;
    const size_t in = shape->columns, out = shape->outputs;
    EACH_GROUP(shape, o->begins, group)
    {
        const float *dy = (const float *)o->dy + group.first * out, *w = (const float *)o->w + group.weights;
        float *dx = (float *)o->dx + group.first * in;
        if (transposes(group.rows, in, out))
            TRY(transposed_product(cpu, group.rows, in, out, dy, w, dx, error));
        else
            TRY(cpu_product(cpu, &(Product){.transpose_b = true, .m = group.rows, .n = in, .k = out, .alpha = 1}, dy, w,
                            dx, error));
    }
    return STATUS_OK;
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
