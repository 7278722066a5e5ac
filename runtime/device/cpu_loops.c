/* Operations that are bound by memory. Sums use a fixed number of lanes, so that their order does not depend on the
   compiler. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

Status cpu_from_floats(Device *device, size_t count, const float *source, void *elements, Error *error)
{
    return cpu_copy(device, count * sizeof(float), source, elements, error);
}

Status cpu_to_floats(Device *device, size_t count, const void *elements, float *destination, Error *error)
{
    return cpu_copy(device, count * sizeof(float), elements, destination, error);
}

Status cpu_load_floats(Device *device, NumberKind kind, size_t count, const float *source, void *destination,
                       Error *error)
{
    (void)kind;
    return cpu_from_floats(device, count, source, destination, error);
}

Status cpu_store_floats(Device *device, NumberKind kind, size_t count, const void *source, float *destination,
                        Error *error)
{
    (void)kind;
    return cpu_to_floats(device, count, source, destination, error);
}

Status cpu_fill(Device *device, NumberKind kind, size_t count, double value, void *destination, Error *error)
{
    (void)device, (void)kind, (void)error;
    float *elements = destination;
    for (size_t i = 0; i < count; i++)
        elements[i] = (float)value;
    return STATUS_OK;
}

Status cpu_copy(Device *device, size_t bytes, const void *source, void *destination, Error *error)
{
    (void)device, (void)error;
    memcpy(destination, source, bytes);
    return STATUS_OK;
}

Status cpu_add(Device *device, size_t count, const void *addend, void *sum, Error *error)
{
    return cpu_accumulate(device, count, addend, sum, error);
}

Status cpu_accumulate(Device *device, size_t count, const void *addend, void *sum, Error *error)
{
    (void)device, (void)error;
    const float *restrict a = addend;
    float *restrict s = sum;
    for (size_t i = 0; i < count; i++)
        s[i] += a[i];
    return STATUS_OK;
}

Status cpu_embedding_forward(Device *device, size_t rows, size_t columns, size_t sequence, const int32_t *tokens,
                             const void *token_table, const void *position_table, void *y, Error *error)
{
    (void)device, (void)error;
    float *restrict out = y;
    for (size_t i = 0; i < rows; i++, out += columns) {
        const float *by_token = (const float *)token_table + (size_t)tokens[i] * columns;
        const float *by_position = (const float *)position_table + i % sequence * columns;
        for (size_t j = 0; j < columns; j++)
            out[j] = by_token[j] + by_position[j];
    }
    return STATUS_OK;
}

Status cpu_embedding_backward(Device *device, size_t rows, size_t columns, size_t sequence, const int32_t *tokens,
                              const void *dy, void *dtoken_table, void *dposition_table, Error *error)
{
    for (size_t i = 0; i < rows; i++) {
        const float *row = (const float *)dy + i * columns;
        TRY(cpu_accumulate(device, columns, row, (float *)dtoken_table + (size_t)tokens[i] * columns, error));
        TRY(cpu_accumulate(device, columns, row, (float *)dposition_table + i % sequence * columns, error));
    }
    return STATUS_OK;
}

Status cpu_squared_error(Device *device, size_t count, double scale, const void *y, const float *targets, void *dy,
                         double *loss, Error *error)
{
    (void)device, (void)error;
    const float *in = y;
    float *out = dy;
    const float factor = (float)(2 * scale / (double)count);
    double total = 0;
    for (size_t i = 0; i < count; i++) {
        const float difference = in[i] - targets[i];
        total += (double)difference * (double)difference;
        out[i] = difference * factor;
    }
    *loss = total / (double)count;
    return STATUS_OK;
}

Status cpu_sum_of_squares(Device *device, size_t count, const void *values, double *sum, Error *error)
{
    (void)device, (void)error;
    enum { LANES = 8 };
    const float *elements = values;
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += (double)elements[i + l] * (double)elements[i + l];
    for (; i < count; i++)
        lanes[i % LANES] += (double)elements[i] * (double)elements[i];
    double total = 0;
    for (size_t l = 0; l < LANES; l++)
        total += lanes[l];
    *sum = total;
    return STATUS_OK;
}

Status cpu_adamw(Device *device, const AdamW *settings, size_t count, void *parameters, void *gradients, void *moment1,
                 void *moment2, void *elements, Error *error)
{
    (void)device, (void)elements, (void)error;
    float *restrict p = parameters, *restrict g = gradients, *restrict m = moment1, *restrict v = moment2;
    const double correction1 = 1 - pow(settings->beta1, (double)settings->step);
    const double correction2 = 1 - pow(settings->beta2, (double)settings->step);
    const float beta1 = (float)settings->beta1, rest1 = (float)(1 - settings->beta1);
    const float beta2 = (float)settings->beta2, rest2 = (float)(1 - settings->beta2);
    const float rate = (float)(settings->rate / correction1), keep = (float)(1 - settings->rate * settings->decay);
    const float root = (float)(1 / sqrt(correction2)), epsilon = (float)settings->epsilon, clip = (float)settings->clip;
    for (size_t i = 0; i < count; i++) {
        const float gradient = clip * g[i];
        m[i] = beta1 * m[i] + rest1 * gradient;
        v[i] = beta2 * v[i] + rest2 * (gradient * gradient);
        p[i] = keep * p[i] - rate * m[i] / (sqrtf(v[i]) * root + epsilon);
        g[i] = 0;
    }
    return STATUS_OK;
}
