/* The operations of layers with experts on the oracle. */

#include "tests/oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_sum = 1e-20; /* DeepSeek-V3 */

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

/* The position of values[index] in descending order; equal values are in the order of their index. */
static size_t position(const double *values, size_t count, size_t index)
{
    size_t before = 0;
    for (size_t i = 0; i < count; i++)
        before += values[i] > values[index] || (values[i] == values[index] && i < index);
    return before;
}

/* sums[g] = the sum of the two largest values of group g; if the group has one expert, its value. */
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

/* f of `expert` in the balance loss: how often the tokens of the sequence that starts at `first` chose it, divided by
   the mean over all experts. */
static double frequency(const KernelShape *shape, const int32_t *chosen, size_t first, size_t expert)
{
    const Routing *routing = &shape->routing;
    double count = 0;
    for (size_t i = first * routing->chosen; i < (first + shape->sequence) * routing->chosen; i++)
        count += (size_t)chosen[i] == expert;
    return count * routing->experts / ((double)routing->chosen * (double)shape->sequence);
}

ORACLE(route)
{
    const KernelShape *shape = &op->kernel->shape;
    const Routing *routing = &shape->routing;
    const size_t experts = routing->experts, k = routing->chosen;
    double *biased = malloc(experts * sizeof *biased), total = 0;
    if (!biased)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    for (size_t t = 0; t < shape->rows; t++) {
        const double *row = (const double *)o->logits + t * experts;
        choose(routing, row, o->bias, biased, o->chosen + t * k);
        for (size_t j = 0; j < k; j++)
            ((double *)o->gates)[t * k + j] = routing->factor * score_of(routing, row, (size_t)o->chosen[t * k + j]) /
                                              sum_of_chosen(routing, row, o->chosen + t * k);
    }
    for (size_t t = 0; t < shape->rows; t++) {
        const double *row = (const double *)o->logits + t * experts;
        for (size_t i = 0; i < experts; i++)
            total += frequency(shape, o->chosen, t / shape->sequence * shape->sequence, i) * score_of(routing, row, i) /
                     sum_of_scores(routing, row);
    }
    *(double *)o->balance = op->scale * total / (double)shape->rows;
    free(biased);
    return STATUS_OK;
}

/* The gradient of the loss with respect to a token's score of `expert`, through the gates and through the balance
   loss. */
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

ORACLE(route_backward)
{
    const KernelShape *shape = &op->kernel->shape;
    const Routing *routing = &shape->routing;
    for (size_t t = 0; t < shape->rows; t++) {
        const double *row = (const double *)o->logits + t * routing->experts;
        double *out = (double *)o->dlogits + t * routing->experts, mean = 0;
        for (size_t i = 0; i < routing->experts; i++) {
            out[i] = score_gradient(shape, op->scale, row, o->chosen, o->dgates, t, i);
            mean += out[i] * score_of(routing, row, i);
        }
        for (size_t i = 0; i < routing->experts; i++) {
            const double score = score_of(routing, row, i);
            out[i] = score * (routing->softmax ? out[i] - mean : out[i] * (1 - score));
        }
    }
    return STATUS_OK;
}

/* places: the number of rows with a lower expert, or with the same expert and a lower token. */
ORACLE(group_rows)
{
    const size_t rows = op->kernel->shape.rows * op->kernel->shape.routing.chosen;
    for (size_t e = 0; e <= op->kernel->shape.routing.experts; e++) {
        o->begins[e] = 0;
        for (size_t i = 0; i < rows; i++)
            o->begins[e] += (size_t)o->chosen[i] < e;
    }
    for (size_t i = 0; i < rows; i++) {
        o->places[i] = o->begins[o->chosen[i]];
        for (size_t other = 0; other < i; other++)
            o->places[i] += o->chosen[other] == o->chosen[i];
    }
    return STATUS_OK;
}

ORACLE(count_loads)
{
    for (size_t e = 0; e < op->kernel->shape.routing.experts; e++)
        ((double *)o->loads)[e] += o->begins[e + 1] - o->begins[e];
    *(double *)o->total += *(const double *)o->balance;
    return STATUS_OK;
}

ORACLE(permute)
{
    const size_t columns = op->kernel->shape.columns, k = op->kernel->shape.routing.chosen;
    for (size_t i = 0; i < op->kernel->shape.rows * k; i++)
        for (size_t c = 0; c < columns; c++)
            ((double *)o->y)[(size_t)o->places[i] * columns + c] = ((const double *)o->x)[i / k * columns + c];
    return STATUS_OK;
}

ORACLE(unpermute)
{
    const size_t columns = op->kernel->shape.columns, k = op->kernel->shape.routing.chosen;
    const double *in = o->x, *gate = o->gates, *base = o->residual;
    double *out = o->y;
    for (size_t i = 0; i < op->kernel->shape.rows * columns; i++) {
        out[i] = base ? base[i] : 0;
        for (size_t j = i / columns * k; j < (i / columns + 1) * k; j++)
            out[i] += (gate ? gate[j] : 1) * in[(size_t)o->places[j] * columns + i % columns];
    }
    return STATUS_OK;
}

ORACLE(unpermute_backward)
{
    const size_t columns = op->kernel->shape.columns, k = op->kernel->shape.routing.chosen;
    const double *in = o->x, *gate = o->gates, *d = o->dy;
    double *out = o->dx, *dgate = o->dgates;
    for (size_t i = 0; i < op->kernel->shape.rows * k; i++) {
        dgate[i] = 0;
        for (size_t c = 0; c < columns; c++) {
            const size_t at = (size_t)o->places[i] * columns + c;
            dgate[i] += in[at] * d[i / k * columns + c];
            out[at] = gate[i] * d[i / k * columns + c];
        }
    }
    return STATUS_OK;
}

/* y = x w, or y = x w^T if `transpose`. Each row uses the matrix of its expert. */
static void product_of_rows(Device *device, const KernelShape *shape, const int32_t *begins, bool transpose,
                            const double *x, const double *w, double *y)
{
    const size_t outputs = shape->outputs, from = transpose ? outputs : shape->columns,
                 to = transpose ? shape->columns : outputs;
    memset(y, 0, (size_t)begins[shape_blocks(shape)] * to * sizeof *y);
    for (size_t e = 0; e < shape_blocks(shape); e++)
        oracle_product(device, (size_t)(begins[e + 1] - begins[e]), to, from, x + (size_t)begins[e] * from, from, 1,
                       w + e % shape->routing.experts * from * to, transpose ? 1 : outputs, transpose ? outputs : 1,
                       y + (size_t)begins[e] * to);
}

ORACLE(grouped_forward)
{
    product_of_rows(device, &op->kernel->shape, o->begins, false, o->x, o->w, o->y);
    return STATUS_OK;
}

ORACLE(grouped_backward_input)
{
    product_of_rows(device, &op->kernel->shape, o->begins, true, o->dy, o->w, o->dx);
    return STATUS_OK;
}

ORACLE(grouped_backward_weight)
{
    const KernelShape *shape = &op->kernel->shape;
    const size_t columns = shape->columns, outputs = shape->outputs;
    for (size_t e = 0; e < shape_blocks(shape); e++)
        oracle_product(device, columns, outputs, (size_t)(o->begins[e + 1] - o->begins[e]),
                       (const double *)o->x + (size_t)o->begins[e] * columns, 1, columns,
                       (const double *)o->dy + (size_t)o->begins[e] * outputs, outputs, 1,
                       (double *)o->dw + e % shape->routing.experts * columns * outputs);
    return STATUS_OK;
}

ORACLE(swiglu_forward)
{
    const size_t columns = op->kernel->shape.columns, rows = shape_rows(&op->kernel->shape, o->begins);
    for (size_t i = 0; i < rows * columns; i++) {
        const double *row = (const double *)o->x + i / columns * 2 * columns;
        const double gate = row[i % columns], up = row[columns + i % columns];
        ((double *)o->y)[i] = gate / (1 + exp(-gate)) * up;
    }
    return STATUS_OK;
}

ORACLE(swiglu_backward)
{
    const size_t columns = op->kernel->shape.columns, rows = shape_rows(&op->kernel->shape, o->begins);
    for (size_t i = 0; i < rows * columns; i++) {
        const size_t at = i / columns * 2 * columns + i % columns;
        const double gate = ((const double *)o->x)[at], up = ((const double *)o->x)[at + columns];
        const double d = ((const double *)o->dy)[i], sigmoid = 1 / (1 + exp(-gate));
        ((double *)o->dx)[at] = d * up * (sigmoid + gate * sigmoid * (1 - sigmoid));
        ((double *)o->dx)[at + columns] = d * gate * sigmoid;
    }
    return STATUS_OK;
}
