/* The operations of dense layers and of a model's first and last component on the oracle. */

#include "base/clock.h"
#include "tests/oracle/oracle.h"

#include <math.h>
#include <string.h>

static const double norm_epsilon = 1e-5;

void oracle_product(Device *device, size_t m, size_t n, size_t k, const double *a, size_t a_row, size_t a_column,
                    const double *b, size_t b_row, size_t b_column, double *c)
{
    int64_t start = device->products.on ? clock_nanoseconds() : 0;
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++)
                c[i * n + j] += a[i * a_row + l * a_column] * b[l * b_row + j * b_column];
    if (device->products.on) {
        device->products.nanoseconds += clock_nanoseconds() - start;
        device->products.calls++;
        device->products.operations += 2.0 * (double)m * (double)n * (double)k;
    }
}

ORACLE(linear_forward)
{
    const KernelShape *shape = &op->kernel->shape;
    const double *b = o->bias, *r = o->residual;
    double *out = o->y;
    for (size_t i = 0; i < shape->rows; i++)
        for (size_t j = 0; j < shape->outputs; j++)
            out[i * shape->outputs + j] = (b ? b[j] : 0) + (r ? r[i * shape->outputs + j] : 0);
    oracle_product(device, shape->rows, shape->outputs, shape->columns, o->x, shape->columns, 1, o->w, shape->outputs,
                   1, out);
    return STATUS_OK;
}

ORACLE(linear_backward_input)
{
    const KernelShape *shape = &op->kernel->shape;
    memset(o->dx, 0, shape->rows * shape->columns * sizeof(double));
    oracle_product(device, shape->rows, shape->columns, shape->outputs, o->dy, shape->outputs, 1, o->w, 1,
                   shape->outputs, o->dx);
    return STATUS_OK;
}

ORACLE(linear_backward_weight)
{
    const KernelShape *shape = &op->kernel->shape;
    const double *d = o->dy;
    double *db = o->dbias;
    oracle_product(device, shape->columns, shape->outputs, shape->rows, o->x, 1, shape->columns, o->dy, shape->outputs,
                   1, o->dw);
    for (size_t i = 0; db && i < shape->rows; i++)
        for (size_t j = 0; j < shape->outputs; j++)
            db[j] += d[i * shape->outputs + j];
    return STATUS_OK;
}

/* statistics: mean and 1 / sqrt(variance + epsilon) of each row */
ORACLE(norm_forward)
{
    const size_t columns = op->kernel->shape.columns;
    const double *in = o->x, *g = o->gain, *s = o->shift;
    double *out = o->y, *statistic = o->statistics;
    for (size_t i = 0; i < op->kernel->shape.rows; i++) {
        double mean = 0, variance = 0;
        for (size_t j = 0; j < columns; j++)
            mean += in[i * columns + j] / (double)columns;
        for (size_t j = 0; j < columns; j++)
            variance += (in[i * columns + j] - mean) * (in[i * columns + j] - mean) / (double)columns;
        const double inverse = 1 / sqrt(variance + norm_epsilon);
        for (size_t j = 0; j < columns; j++)
            out[i * columns + j] = (in[i * columns + j] - mean) * inverse * g[j] + s[j];
        statistic[2 * i] = mean;
        statistic[2 * i + 1] = inverse;
    }
    return STATUS_OK;
}

ORACLE(norm_backward_input)
{
    const size_t columns = op->kernel->shape.columns;
    const double *in = o->x, *statistic = o->statistics, *g = o->gain, *d = o->dy, *r = o->residual;
    double *out = o->dx;
    for (size_t i = 0; i < op->kernel->shape.rows; i++) {
        const double mean = statistic[2 * i], inverse = statistic[2 * i + 1];
        /* over a row: the mean of dy * gain, and the mean of dy * gain * normalised x */
        double mean_d = 0, mean_dn = 0;
        for (size_t j = 0; j < columns; j++) {
            mean_d += d[i * columns + j] * g[j] / (double)columns;
            mean_dn += d[i * columns + j] * g[j] * (in[i * columns + j] - mean) * inverse / (double)columns;
        }
        for (size_t j = 0; j < columns; j++) {
            const double normalised = (in[i * columns + j] - mean) * inverse;
            out[i * columns + j] =
                inverse * (d[i * columns + j] * g[j] - mean_d - normalised * mean_dn) + (r ? r[i * columns + j] : 0);
        }
    }
    return STATUS_OK;
}

ORACLE(norm_backward_weight)
{
    const size_t columns = op->kernel->shape.columns;
    const double *in = o->x, *statistic = o->statistics, *d = o->dy;
    double *dg = o->dgain, *ds = o->dshift;
    for (size_t i = 0; i < op->kernel->shape.rows; i++)
        for (size_t j = 0; j < columns; j++) {
            dg[j] += d[i * columns + j] * (in[i * columns + j] - statistic[2 * i]) * statistic[2 * i + 1];
            ds[j] += d[i * columns + j];
        }
    return STATUS_OK;
}

static double normal_integral(double x) { return 0.5 * erfc(-x / sqrt(2)); }

static void gelu(const Kernel *kernel, const double *x, double *y)
{
    for (size_t i = 0; i < kernel->shape.rows * kernel->shape.columns; i++)
        y[i] = x[i] * normal_integral(x[i]);
}

static void gelu_gradient(const Kernel *kernel, const double *x, const double *dy, double *dx)
{
    for (size_t i = 0; i < kernel->shape.rows * kernel->shape.columns; i++) {
        const double density = exp(-0.5 * x[i] * x[i]) / sqrt(2 * acos(-1));
        dx[i] = dy[i] * (normal_integral(x[i]) + x[i] * density);
    }
}

ORACLE(gelu_forward)
{
    gelu(op->kernel, o->x, o->y);
    return STATUS_OK;
}

ORACLE(gelu_backward)
{
    gelu_gradient(op->kernel, o->x, o->dy, o->dx);
    return STATUS_OK;
}

ORACLE(linear_gelu_forward)
{
    TRY(oracle_linear_forward(device, op, &(struct linear_forward_operands){o->x, o->w, o->bias, NULL, o->y}, error));
    gelu(op->gelu, o->y, o->active);
    return STATUS_OK;
}

ORACLE(linear_gelu_backward_input)
{
    TRY(oracle_linear_backward_input(device, op, &(struct linear_backward_input_operands){o->dy, o->w, o->dx}, error));
    gelu_gradient(op->gelu, o->before, o->dx, o->dx);
    return STATUS_OK;
}

/* Where one head of one sequence begins in qkv (q, k, v), in y and in the probabilities, in elements. */
typedef struct Head {
    size_t sequence, width, pitch; /* pitch: elements between two rows of qkv */
    size_t q, k, v, y, probabilities;
    double scale;
} Head;

static Head head_of(const KernelShape *shape, size_t sample, size_t head)
{
    const size_t width = shape->columns / shape->heads, row = sample * shape->sequence;
    return (Head){
        .sequence = shape->sequence,
        .width = width,
        .pitch = 3 * shape->columns,
        .q = row * 3 * shape->columns + head * width,
        .k = row * 3 * shape->columns + shape->columns + head * width,
        .v = row * 3 * shape->columns + 2 * shape->columns + head * width,
        .y = row * shape->columns + head * width,
        .probabilities = (sample * shape->heads + head) * shape->sequence * shape->sequence,
        .scale = 1 / sqrt((double)width),
    };
}

ORACLE(attention_forward)
{
    const KernelShape *shape = &op->kernel->shape;
    const double *in = o->qkv;
    double *out = o->y, *all_probabilities = o->context;
    for (size_t which = 0; which < shape->rows / shape->sequence * shape->heads; which++) {
        const Head h = head_of(shape, which / shape->heads, which % shape->heads);
        for (size_t i = 0; i < h.sequence; i++) {
            double *p = all_probabilities + h.probabilities + i * h.sequence;
            double largest = -INFINITY, sum = 0;
            for (size_t j = 0; j <= i; j++) {
                double score = 0;
                for (size_t c = 0; c < h.width; c++)
                    score += in[h.q + i * h.pitch + c] * in[h.k + j * h.pitch + c];
                p[j] = score * h.scale;
                largest = fmax(largest, p[j]);
            }
            for (size_t j = 0; j <= i; j++)
                sum += p[j] = exp(p[j] - largest);
            for (size_t j = 0; j < h.sequence; j++)
                p[j] = j <= i ? p[j] / sum : 0;
            for (size_t c = 0; c < h.width; c++) {
                double mixed = 0;
                for (size_t j = 0; j <= i; j++)
                    mixed += p[j] * in[h.v + j * h.pitch + c];
                out[h.y + i * shape->columns + c] = mixed;
            }
        }
    }
    return STATUS_OK;
}

ORACLE(attention_backward)
{
    const KernelShape *shape = &op->kernel->shape;
    const double *in = o->qkv, *mixed = o->y, *all_probabilities = o->context, *d = o->dy;
    double *out = o->dqkv;
    memset(out, 0, shape->rows * 3 * shape->columns * sizeof(double));
    for (size_t which = 0; which < shape->rows / shape->sequence * shape->heads; which++) {
        const Head h = head_of(shape, which / shape->heads, which % shape->heads);
        for (size_t i = 0; i < h.sequence; i++) {
            const double *p = all_probabilities + h.probabilities + i * h.sequence;
            const double *di = d + h.y + i * shape->columns;
            double mean = 0; /* the sum of p * dp over the keys, for the gradient of the softmax */
            for (size_t c = 0; c < h.width; c++)
                mean += di[c] * mixed[h.y + i * shape->columns + c];
            for (size_t j = 0; j <= i; j++) {
                double dp = 0;
                for (size_t c = 0; c < h.width; c++) {
                    dp += di[c] * in[h.v + j * h.pitch + c];
                    out[h.v + j * h.pitch + c] += p[j] * di[c];
                }
                const double dscore = p[j] * (dp - mean) * h.scale;
                for (size_t c = 0; c < h.width; c++) {
                    out[h.q + i * h.pitch + c] += dscore * in[h.k + j * h.pitch + c];
                    out[h.k + j * h.pitch + c] += dscore * in[h.q + i * h.pitch + c];
                }
            }
        }
    }
    return STATUS_OK;
}

ORACLE(embedding_forward)
{
    const double *by_token = o->token_table, *by_position = o->position_table;
    double *out = o->y;
    for (size_t i = 0; i < op->rows; i++)
        for (size_t j = 0; j < op->columns; j++)
            out[i * op->columns + j] =
                by_token[(size_t)o->tokens[i] * op->columns + j] + by_position[i % op->sequence * op->columns + j];
    return STATUS_OK;
}

ORACLE(embedding_backward)
{
    const double *d = o->dy;
    double *by_token = o->dtoken_table, *by_position = o->dposition_table;
    for (size_t i = 0; i < op->rows; i++)
        for (size_t j = 0; j < op->columns; j++) {
            by_token[(size_t)o->tokens[i] * op->columns + j] += d[i * op->columns + j];
            by_position[i % op->sequence * op->columns + j] += d[i * op->columns + j];
        }
    return STATUS_OK;
}

ORACLE(cross_entropy)
{
    const size_t rows = op->kernel->shape.rows, columns = op->kernel->shape.columns;
    double total = 0;
    for (size_t i = 0; i < rows; i++) {
        double *row = (double *)o->logits + i * columns;
        double largest = -INFINITY, sum = 0;
        for (size_t j = 0; j < columns; j++)
            largest = fmax(largest, row[j]);
        for (size_t j = 0; j < columns; j++)
            sum += exp(row[j] - largest);
        const double log_sum = largest + log(sum);
        total += log_sum - row[o->targets[i]];
        for (size_t j = 0; j < columns; j++)
            row[j] = (exp(row[j] - log_sum) - (j == (size_t)o->targets[i])) * op->scale / (double)rows;
    }
    *o->loss = total / (double)rows;
    return STATUS_OK;
}

ORACLE(squared_error)
{
    const double *in = o->y;
    double *out = o->dy, total = 0;
    for (size_t i = 0; i < op->count; i++) {
        const double difference = in[i] - (double)o->targets[i];
        total += difference * difference;
        out[i] = 2 * difference * op->scale / (double)op->count;
    }
    *o->loss = total / (double)op->count;
    return STATUS_OK;
}
