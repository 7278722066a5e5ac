/* Layer norm on the CPU. Sums use lanes: their order is fixed, and the compiler vectorizes them. oneDNN 2.6 has no
   kernel with separate gain and shift. */

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
Status cpu_norm_forward(Device *device, const Kernel *norm, const void *x, const void *gain, const void *shift, void *y,
                        void *statistics, Error *error)
{
    (void)device, (void)error;
    const size_t columns = norm->shape.columns;
    const float *restrict in = x, *restrict g = gain, *restrict s = shift;
    float *restrict out = y, *restrict statistic = statistics;
    for (size_t i = 0; i < norm->shape.rows; i++, in += columns, out += columns) {
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

Status cpu_norm_backward_input(Device *device, const Kernel *norm, const void *x, const void *statistics,
                               const void *gain, const void *dy, const void *residual, void *dx, Error *error)
{
    (void)error;
    const size_t columns = norm->shape.columns, rows = norm->shape.rows;
    const float *statistic = statistics;
    for (size_t i = 0; i < rows; i++) {
        const float *restrict in = (const float *)x + i * columns, *restrict g = gain;
        const float *restrict d = (const float *)dy + i * columns;
        float *restrict out = (float *)dx + i * columns;
        const float mean = statistic[2 * i], inverse = statistic[2 * i + 1];
        const RowMeans means = row_means(columns, in, g, d, mean, inverse);
        for (size_t j = 0; j < columns; j++)
            out[j] = inverse * (d[j] * g[j] - means.d - (in[j] - mean) * inverse * means.dn);
    }
    return residual ? cpu_accumulate(device, rows * columns, residual, dx, error) : STATUS_OK;
}

Status cpu_norm_backward_weight(Device *device, const Kernel *norm, const void *x, const void *statistics,
                                const void *dy, void *dgain, void *dshift, Error *error)
{
    (void)device, (void)error;
    const size_t columns = norm->shape.columns;
    const float *restrict in = x, *restrict d = dy, *statistic = statistics;
    float *restrict dg = dgain, *restrict ds = dshift;
    for (size_t i = 0; i < norm->shape.rows; i++, in += columns, d += columns) {
        const float mean = statistic[2 * i], inverse = statistic[2 * i + 1];
        for (size_t j = 0; j < columns; j++) {
            dg[j] += d[j] * ((in[j] - mean) * inverse);
            ds[j] += d[j];
        }
    }
    return STATUS_OK;
}
