/* The operations of layers with experts on the oracle. */

#include "runtime/device/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_sum = 1e-20; /* DeepSeek-V3 */

Status oracle_add(Device *device, size_t count, const void *addend, void *sum, Error *error)
{
    (void)device, (void)error;
    for (size_t i = 0; i < count; i++)
        ((double *)sum)[i] += ((const double *)addend)[i];
    return STATUS_OK;
}

static double score_of(const Routing *routing, const double *logits, size_t expert)
{
    if (!routing->softmax)
        return 1 / (1 + exp(-logits[expert]));
    double sum = 0;
    for (size_t i = 0; i < routing->experts; i++)
        sum += exp(logits[i] - logits[expert]);
    return 1 / sum;
}

static double sum_of_scores(const Routing *routing, const double *logits)
{
    double sum = least_sum;
    for (size_t i = 0; i < routing->experts; i++)
        sum += score_of(routing, logits, i);
    return sum;
}

static double sum_of_chosen(const Routing *routing, const double *logits, const int32_t *chosen)
{
    double sum = least_sum;
    for (size_t j = 0; j < routing->chosen; j++)
        sum += score_of(routing, logits, (size_t)chosen[j]);
    return sum;
}

/* The position of the `index`-th value in descending order: larger values come first, then equal ones with lower
   indices. */
static size_t position(const double *values, size_t count, size_t index)
{
    size_t before = 0;
    for (size_t i = 0; i < count; i++)
        before += values[i] > values[index] || (values[i] == values[index] && i < index);
    return before;
}

/* Sums the two largest values of each group. */
static void sum_groups(const Routing *routing, const double *biased, double *sums)
{
    const size_t size = routing->experts / routing->groups;
    for (size_t g = 0; g < routing->groups; g++) {
        sums[g] = 0;
        for (size_t i = 0; i < size; i++)
            if (position(biased + g * size, size, i) < 2)
                sums[g] += biased[g * size + i];
    }
}

static void choose(const Routing *routing, const double *logits, const double *bias, double *biased, int32_t *chosen)
{
    double sums[ROUTING_GROUPS_MOST];
    const size_t experts = routing->experts, size = experts / routing->groups;
    for (size_t i = 0; i < experts; i++)
        biased[i] = score_of(routing, logits, i) + bias[i];
    sum_groups(routing, biased, sums);
    for (size_t i = 0; i < experts; i++)
        if (position(sums, routing->groups, i / size) >= routing->best_groups)
            biased[i] = -INFINITY;
    for (size_t i = 0; i < experts; i++) {
        const size_t at = position(biased, experts, i);
        if (at < routing->chosen)
            chosen[at] = (int32_t)i;
    }
}

/* f of the balance loss: 1 if all experts are chosen equally often in the sequence that starts at `first`. */
static double frequency(const KernelShape *shape, const int32_t *chosen, size_t first, size_t expert)
{
    const Routing *routing = &shape->routing;
    double count = 0;
    for (size_t i = first * routing->chosen; i < (first + shape->sequence) * routing->chosen; i++)
        count += (size_t)chosen[i] == expert;
    return count * routing->experts / ((double)routing->chosen * (double)shape->sequence);
}

Status oracle_route(Device *device, const Kernel *kernel, double scale, const void *logits, const void *bias,
                    int32_t *chosen, void *gates, void *balance, Error *error)
{
    (void)device;
    const KernelShape *shape = &kernel->shape;
    const Routing *routing = &shape->routing;
    const size_t experts = routing->experts, k = routing->chosen;
    double *biased = malloc(experts * sizeof *biased), total = 0;
    if (!biased)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    for (size_t t = 0; t < shape->rows; t++) {
        const double *row = (const double *)logits + t * experts;
        choose(routing, row, bias, biased, chosen + t * k);
        for (size_t j = 0; j < k; j++)
            ((double *)gates)[t * k + j] = routing->factor * score_of(routing, row, (size_t)chosen[t * k + j]) /
                                           sum_of_chosen(routing, row, chosen + t * k);
    }
    for (size_t t = 0; t < shape->rows; t++) {
        const double *row = (const double *)logits + t * experts;
        for (size_t i = 0; i < experts; i++)
            total += frequency(shape, chosen, t / shape->sequence * shape->sequence, i) * score_of(routing, row, i) /
                     sum_of_scores(routing, row);
    }
    *(double *)balance = scale * total / (double)shape->rows;
    free(biased);
    return STATUS_OK;
}

/* The gradient of a token's score through the gates and through the balance loss. */
static double score_gradient(const KernelShape *shape, double scale, const double *logits, const int32_t *chosen,
                             const double *dgates, size_t token, size_t expert)
{
    const Routing *routing = &shape->routing;
    const int32_t *own = chosen + token * routing->chosen;
    const size_t first = token / shape->sequence * shape->sequence;
    const double sum = sum_of_chosen(routing, logits, own), all = sum_of_scores(routing, logits);
    double gradient = frequency(shape, chosen, first, expert);
    for (size_t i = 0; i < routing->experts; i++)
        gradient -= frequency(shape, chosen, first, i) * score_of(routing, logits, i) / all;
    gradient *= scale / (double)shape->rows / all;
    for (size_t j = 0; j < routing->chosen; j++) { /* gate j = factor * s[own[j]] / sum */
        double derivative = -score_of(routing, logits, (size_t)own[j]) / sum;
        bool is_chosen = false;
        for (size_t i = 0; i < routing->chosen; i++)
            is_chosen |= (size_t)own[i] == expert;
        derivative = ((size_t)own[j] == expert) + (is_chosen ? derivative : 0);
        gradient += dgates[token * routing->chosen + j] * routing->factor * derivative / sum;
    }
    return gradient;
}

Status oracle_route_backward(Device *device, const Kernel *kernel, double scale, const void *logits,
                             const int32_t *chosen, const void *dgates, void *dlogits, Error *error)
{
    (void)device, (void)error;
    const KernelShape *shape = &kernel->shape;
    const Routing *routing = &shape->routing;
    for (size_t t = 0; t < shape->rows; t++) {
        const double *row = (const double *)logits + t * routing->experts;
        double *out = (double *)dlogits + t * routing->experts, mean = 0;
        for (size_t i = 0; i < routing->experts; i++) {
            out[i] = score_gradient(shape, scale, row, chosen, dgates, t, i);
            mean += out[i] * score_of(routing, row, i);
        }
        for (size_t i = 0; i < routing->experts; i++) {
            const double score = score_of(routing, row, i);
            out[i] = score * (routing->softmax ? out[i] - mean : out[i] * (1 - score));
        }
    }
    return STATUS_OK;
}

/* A row's place is the number of rows with a lower expert, or with the same expert and a lower token. */
Status oracle_group_rows(Device *device, const Kernel *kernel, const int32_t *chosen, int32_t *places, int32_t *begins,
                         Error *error)
{
    (void)device, (void)error;
    const size_t rows = kernel->shape.rows * kernel->shape.routing.chosen;
    for (size_t e = 0; e <= kernel->shape.routing.experts; e++) {
        begins[e] = 0;
        for (size_t i = 0; i < rows; i++)
            begins[e] += (size_t)chosen[i] < e;
    }
    for (size_t i = 0; i < rows; i++) {
        places[i] = begins[chosen[i]];
        for (size_t other = 0; other < i; other++)
            places[i] += chosen[other] == chosen[i];
    }
    return STATUS_OK;
}

Status oracle_count_loads(Device *device, const Kernel *kernel, const int32_t *begins, const void *balance, void *loads,
                          void *total, Error *error)
{
    (void)device, (void)error;
    for (size_t e = 0; e < kernel->shape.routing.experts; e++)
        ((double *)loads)[e] += begins[e + 1] - begins[e];
    *(double *)total += *(const double *)balance;
    return STATUS_OK;
}

Status oracle_permute(Device *device, const Kernel *kernel, const void *x, const int32_t *places, void *y, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, k = kernel->shape.routing.chosen;
    for (size_t i = 0; i < kernel->shape.rows * k; i++)
        for (size_t c = 0; c < columns; c++)
            ((double *)y)[(size_t)places[i] * columns + c] = ((const double *)x)[i / k * columns + c];
    return STATUS_OK;
}

Status oracle_unpermute(Device *device, const Kernel *kernel, const void *x, const int32_t *places, const void *gates,
                        const void *residual, void *y, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, k = kernel->shape.routing.chosen;
    const double *in = x, *gate = gates, *base = residual;
    double *out = y;
    for (size_t i = 0; i < kernel->shape.rows * columns; i++) {
        out[i] = base ? base[i] : 0;
        for (size_t j = i / columns * k; j < (i / columns + 1) * k; j++)
            out[i] += (gate ? gate[j] : 1) * in[(size_t)places[j] * columns + i % columns];
    }
    return STATUS_OK;
}

Status oracle_unpermute_backward(Device *device, const Kernel *kernel, const void *x, const int32_t *places,
                                 const void *gates, const void *dy, void *dx, void *dgates, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, k = kernel->shape.routing.chosen;
    const double *in = x, *gate = gates, *d = dy;
    double *out = dx, *dgate = dgates;
    for (size_t i = 0; i < kernel->shape.rows * k; i++) {
        dgate[i] = 0;
        for (size_t c = 0; c < columns; c++) {
            const size_t at = (size_t)places[i] * columns + c;
            dgate[i] += in[at] * d[i / k * columns + c];
            out[at] = gate[i] * d[i / k * columns + c];
        }
    }
    return STATUS_OK;
}

static size_t blocks_of(const KernelShape *shape)
{
    return shape->routing.experts * (shape->sources ? shape->sources : 1);
}

static size_t rows_of(const KernelShape *shape, const int32_t *begins)
{
    return begins ? (size_t)begins[blocks_of(shape)] : shape->rows;
}

Status oracle_grouped_forward(Device *device, const Kernel *kernel, const void *x, const void *w, const int32_t *begins,
                              void *y, Error *error)
{
    (void)error;
    const KernelShape *shape = &kernel->shape;
    const size_t columns = shape->columns, outputs = shape->outputs;
    memset(y, 0, (size_t)begins[blocks_of(shape)] * outputs * sizeof(double));
    for (size_t e = 0; e < blocks_of(shape); e++)
        oracle_product(device, (size_t)(begins[e + 1] - begins[e]), outputs, columns,
                       (const double *)x + (size_t)begins[e] * columns, columns, 1,
                       (const double *)w + e % shape->routing.experts * columns * outputs, outputs, 1,
                       (double *)y + (size_t)begins[e] * outputs);
    return STATUS_OK;
}

Status oracle_grouped_backward_input(Device *device, const Kernel *kernel, const void *dy, const void *w,
                                     const int32_t *begins, void *dx, Error *error)
{
    (void)error;
    const KernelShape *shape = &kernel->shape;
    const size_t columns = shape->columns, outputs = shape->outputs;
    memset(dx, 0, (size_t)begins[blocks_of(shape)] * columns * sizeof(double));
    for (size_t e = 0; e < blocks_of(shape); e++)
        oracle_product(device, (size_t)(begins[e + 1] - begins[e]), columns, outputs,
                       (const double *)dy + (size_t)begins[e] * outputs, outputs, 1,
                       (const double *)w + e % shape->routing.experts * columns * outputs, 1, outputs,
                       (double *)dx + (size_t)begins[e] * columns);
    return STATUS_OK;
}

Status oracle_grouped_backward_weight(Device *device, const Kernel *kernel, const void *x, const void *dy,
                                      const int32_t *begins, void *dw, Error *error)
{
    (void)error;
    const KernelShape *shape = &kernel->shape;
    const size_t columns = shape->columns, outputs = shape->outputs;
    for (size_t e = 0; e < blocks_of(shape); e++)
        oracle_product(device, columns, outputs, (size_t)(begins[e + 1] - begins[e]),
                       (const double *)x + (size_t)begins[e] * columns, 1, columns,
                       (const double *)dy + (size_t)begins[e] * outputs, outputs, 1,
                       (double *)dw + e % shape->routing.experts * columns * outputs);
    return STATUS_OK;
}

Status oracle_swiglu_forward(Device *device, const Kernel *kernel, const void *x, const int32_t *begins, void *y,
                             Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, rows = rows_of(&kernel->shape, begins);
    for (size_t i = 0; i < rows * columns; i++) {
        const double *row = (const double *)x + i / columns * 2 * columns;
        const double gate = row[i % columns], up = row[columns + i % columns];
        ((double *)y)[i] = gate / (1 + exp(-gate)) * up;
    }
    return STATUS_OK;
}

Status oracle_swiglu_backward(Device *device, const Kernel *kernel, const void *x, const void *dy,
                              const int32_t *begins, void *dx, Error *error)
{
    (void)device, (void)error;
    const size_t columns = kernel->shape.columns, rows = rows_of(&kernel->shape, begins);
    for (size_t i = 0; i < rows * columns; i++) {
        const size_t at = i / columns * 2 * columns + i % columns;
        const double gate = ((const double *)x)[at], up = ((const double *)x)[at + columns];
        const double d = ((const double *)dy)[i], sigmoid = 1 / (1 + exp(-gate));
        ((double *)dx)[at] = d * up * (sigmoid + gate * sigmoid * (1 - sigmoid));
        ((double *)dx)[at + columns] = d * gate * sigmoid;
    }
    return STATUS_OK;
}
