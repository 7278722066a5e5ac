/* Layer norm on the CPU. Sums over a row use lanes: the order of the additions is fixed, and the compiler vectorizes
   them. oneDNN 2.6 has no kernel with separate gain and shift. */

#include "runtime/device/cpu.h"

#include <math.h>

enum { LANES = 16 };

static float sum_of(const float *lanes)
{
    float sum = 0;
    for (size_t l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

static float mean_of(size_t count, const float *x)
{
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += x[i + l];
    for (size_t l = 0; i < count; i++, l++)
        lanes[l] += x[i];
    return sum_of(lanes) / (float)count;
}

static float variance_of(size_t count, const float *x, float mean)
{
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (size_t l = 0; i < count; i++, l++)
        lanes[l] += (x[i] - mean) * (x[i] - mean);
    return sum_of(lanes) / (float)count;
}

/* statistics: mean and 1 / sqrt(variance + epsilon) of each row */
CPU(norm_forward)
{
    const size_t columns = op->kernel->shape.columns;
    const float *restrict in = o->x, *restrict g = o->gain, *restrict s = o->shift;
    float *restrict out = o->y, *restrict statistic = o->statistics;
    for (size_t i = 0; i < op->kernel->shape.rows; i++, in += columns, out += columns) {
        const float mean = mean_of(columns, in), inverse = 1 / sqrtf(variance_of(columns, in, mean) + 1e-5f);
        for (size_t j = 0; j < columns; j++)
            out[j] = (in[j] - mean) * inverse * g[j] + s[j];
        statistic[2 * i] = mean;
        statistic[2 * i + 1] = inverse;
    }
    return STATUS_OK;
}

/* The means over a row of d = dy * gain and of d * (normalised x). */
typedef struct RowMeans {
    float d, dn;
} RowMeans;

static RowMeans row_means(size_t count, const float *x, const float *g, const float *dy, float mean, float inverse)
{
    float d_lanes[LANES] = {0}, dn_lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            const float d = dy[i + l] * g[i + l];
            d_lanes[l] += d;
            dn_lanes[l] += d * (x[i + l] - mean);
        }
    for (size_t l = 0; i < count; i++, l++) {
        const float d = dy[i] * g[i];
        d_lanes[l] += d;
        dn_lanes[l] += d * (x[i] - mean);
    }
    return (RowMeans){sum_of(d_lanes) / (float)count, sum_of(dn_lanes) * inverse / (float)count};
}

CPU(norm_backward_input)
{
    const size_t columns = op->kernel->shape.columns, rows = op->kernel->shape.rows;
    const float *statistic = o->statistics;
    for (size_t i = 0; i < rows; i++) {
        const float *restrict in = (const float *)o->x + i * columns, *restrict g = o->gain;
        const float *restrict d = (const float *)o->dy + i * columns;
        float *restrict out = (float *)o->dx + i * columns;
        const float mean = statistic[2 * i], inverse = statistic[2 * i + 1];
        const RowMeans means = row_means(columns, in, g, d, mean, inverse);
        for (size_t j = 0; j < columns; j++)
            out[j] = inverse * (d[j] * g[j] - means.d - (in[j] - mean) * inverse * means.dn);
    }
    return o->residual ? cpu_accumulate(device, rows * columns, o->residual, o->dx, error) : STATUS_OK;
}

CPU(norm_backward_weight)
{
    const size_t columns = op->kernel->shape.columns;
    const float *restrict in = o->x, *restrict d = o->dy, *statistic = o->statistics;
    float *restrict dg = o->dgain, *restrict ds = o->dshift;
    for (size_t i = 0; i < op->kernel->shape.rows; i++, in += columns, d += columns) {
        const float mean = statistic[2 * i], inverse = statistic[2 * i + 1];
        for (size_t j = 0; j < columns; j++) {
            dg[j] += d[j] * ((in[j] - mean) * inverse);
            ds[j] += d[j];
        }
    }
    return STATUS_OK;
}
