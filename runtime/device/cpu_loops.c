/* Operations of the CPU device that are bound by memory. The sum of squares uses a fixed number of lanes, so that the
   order of its additions does not depend on the compiler. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

CPU(from_floats)
{
    memcpy(o->elements, o->source, op->count * sizeof(float));
    return STATUS_OK;
}

CPU(to_floats)
{
    memcpy(o->destination, o->elements, op->count * sizeof(float));
    return STATUS_OK;
}

Status cpu_fill(Device *device, NumberKind kind, size_t count, double value, void *destination, Error *error)
{
    (void)device, (void)kind, (void)error;
    float *elements = destination;
    for (size_t i = 0; i < count; i++)
        elements[i] = (float)value;
    return STATUS_OK;
}

CPU(copy)
{
    memcpy(o->destination, o->source, op->count);
    return STATUS_OK;
}

CPU(add) { return cpu_accumulate(device, op->count, o->addend, o->sum, error); }

Status cpu_accumulate(Device *device, size_t count, const void *addend, void *sum, Error *error)
{
    (void)device, (void)error;
    const float *restrict a = addend;
    float *restrict s = sum;
    for (size_t i = 0; i < count; i++)
        s[i] += a[i];
    return STATUS_OK;
}

CPU(embedding_forward)
{
    float *restrict out = o->y;
    for (size_t i = 0; i < op->rows; i++, out += op->columns) {
        const float *by_token = (const float *)o->token_table + (size_t)o->tokens[i] * op->columns;
        const float *by_position = (const float *)o->position_table + i % op->sequence * op->columns;
        for (size_t j = 0; j < op->columns; j++)
            out[j] = by_token[j] + by_position[j];
    }
    return STATUS_OK;
}

CPU(embedding_backward)
{
    for (size_t i = 0; i < op->rows; i++) {
        const float *row = (const float *)o->dy + i * op->columns;
        TRY(cpu_accumulate(device, op->columns, row, (float *)o->dtoken_table + (size_t)o->tokens[i] * op->columns,
                           error));
        TRY(cpu_accumulate(device, op->columns, row, (float *)o->dposition_table + i % op->sequence * op->columns,
                           error));
    }
    return STATUS_OK;
}

CPU(squared_error)
{
    const float *in = o->y;
    float *out = o->dy;
    const float factor = (float)(2 * op->scale / (double)op->count);
    double total = 0;
    for (size_t i = 0; i < op->count; i++) {
        const float difference = in[i] - o->targets[i];
        total += (double)difference * (double)difference;
        out[i] = difference * factor;
    }
    *o->loss = total / (double)op->count;
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
