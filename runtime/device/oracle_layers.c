/* The operations of dense layers and of a model's first and last component on the oracle. */

#include "runtime/base/clock.h"
#include "runtime/device/oracle.h"

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

Status oracle_linear_forward(Device *device, const Kernel *linear, const void *x, const void *w, const void *bias,
                             const void *residual, void *y, Error *error)
{
    (void)error;
    const KernelShape *shape = &linear->shape;
    const double *b = bias, *r = residual;
    double *out = y;
    for (size_t i = 0; i < shape->rows; i++)
        for (size_t j = 0; j < shape->outputs; j++)
            out[i * shape->outputs + j] = (b ? b[j] : 0) + (r ? r[i * shape->outputs + j] : 0);
    oracle_product(device, shape->rows, shape->outputs, shape->columns, x, shape->columns, 1, w, shape->outputs, 1,
                   out);
    return STATUS_OK;
}

Status oracle_linear_backward_input(Device *device, const Kernel *linear, const void *dy, const void *w, void *dx,
                                    Error *error)
{
    (void)error;
    const KernelShape *shape = &linear->shape;
    memset(dx, 0, shape->rows * shape->columns * sizeof(double));
    oracle_product(device, shape->rows, shape->columns, shape->outputs, dy, shape->outputs, 1, w, 1, shape->outputs,
                   dx);
    return STATUS_OK;
}

Status oracle_linear_backward_weight(Device *device, const Kernel *linear, const void *x, const void *dy, void *dw,
                                     void *dbias, Error *error)
{
    (void)error;
    const KernelShape *shape = &linear->shape;
    const double *d = dy;
    double *db = dbias;
    oracle_product(device, shape->columns, shape->outputs, shape->rows, x, 1, shape->columns, dy, shape->outputs, 1,
                   dw);
    for (size_t i = 0; db && i < shape->rows; i++)
        for (size_t j = 0; j < shape->outputs; j++)
            db[j] += d[i * shape->outputs + j];
    return STATUS_OK;
}

/* statistics: mean and 1 / sqrt(variance + epsilon) of each row */
Status oracle_norm_forward(Device *device, const Kernel *norm, const void *x, const void *gain, const void *shift,
                           void *y, void *statistics, Error *error)
{
    (void)device, (void)error;
    const size_t columns = norm->shape.columns;
    const double *in = x, *g = gain, *s = shift;
    double *out = y, *statistic = statistics;
    for (size_t i = 0; i < norm->shape.rows; i++) {
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

Status oracle_norm_backward_input(Device *device, const Kernel *norm, const void *x, const void *statistics,
                                  const void *gain, const void *dy, const void *residual, void *dx, Error *error)
{
    (void)device, (void)error;
    const size_t columns = norm->shape.columns;
    const double *in = x, *statistic = statistics, *g = gain, *d = dy, *r = residual;
    double *out = dx;
    for (size_t i = 0; i < norm->shape.rows; i++) {
        const double mean = statistic[2 * i], inverse = statistic[2 * i + 1];
        double mean_d = 0, mean_dn = 0; /* of d = dy * gain and of d * normalised x */
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

Status oracle_norm_backward_weight(Device *device, const Kernel *norm, const void *x, const void *statistics,
                                   const void *dy, void *dgain, void *dshift, Error *error)
{
    (void)device, (void)error;
    const size_t columns = norm->shape.columns;
    const double *in = x, *statistic = statistics, *d = dy;
    double *dg = dgain, *ds = dshift;
    for (size_t i = 0; i < norm->shape.rows; i++)
        for (size_t j = 0; j < columns; j++) {
            dg[j] += d[i * columns + j] * (in[i * columns + j] - statistic[2 * i]) * statistic[2 * i + 1];
            ds[j] += d[i * columns + j];
        }
    return STATUS_OK;
}

static double normal_integral(double x) { return 0.5 * erfc(-x / sqrt(2)); }

Status oracle_gelu_forward(Device *device, const Kernel *gelu, const void *x, void *y, Error *error)
{
    (void)device, (void)error;
    const double *in = x;
    double *out = y;
    for (size_t i = 0; i < gelu->shape.rows * gelu->shape.columns; i++)
        out[i] = in[i] * normal_integral(in[i]);
    return STATUS_OK;
}

Status oracle_gelu_backward(Device *device, const Kernel *gelu, const void *x, const void *dy, void *dx, Error *error)
{
    (void)device, (void)error;
    const double *in = x, *d = dy;
    double *out = dx;
    for (size_t i = 0; i < gelu->shape.rows * gelu->shape.columns; i++) {
        const double density = exp(-0.5 * in[i] * in[i]) / sqrt(2 * acos(-1));
        out[i] = d[i] * (normal_integral(in[i]) + in[i] * density);
    }
    return STATUS_OK;
}

Status oracle_linear_gelu_forward(Device *device, const Kernel *linear, const Kernel *gelu, const void *x,
                                  const void *w, const void *bias, void *y, void *active, Error *error)
{
    TRY(oracle_linear_forward(device, linear, x, w, bias, NULL, y, error));
    return oracle_gelu_forward(device, gelu, y, active, error);
}

Status oracle_linear_gelu_backward_input(Device *device, const Kernel *linear, const Kernel *gelu, const void *dy,
                                         const void *w, const void *before, void *dx, Error *error)
{
    TRY(oracle_linear_backward_input(device, linear, dy, w, dx, error));
    return oracle_gelu_backward(device, gelu, before, dx, dx, error);
}

/* Offsets of one head of one sequence in its matrices. */
typedef struct Head {
    size_t sequence, width, pitch; /* pitch: elements from one row of qkv to the next */
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

Status oracle_attention_forward(Device *device, const Kernel *attention, const void *qkv, void *y, void *context,
                                Error *error)
{
    (void)device, (void)error;
    const KernelShape *shape = &attention->shape;
    const double *in = qkv;
    double *out = y, *all_probabilities = context;
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

Status oracle_attention_backward(Device *device, const Kernel *attention, const void *qkv, const void *y,
                                 const void *context, const void *dy, void *dqkv, Error *error)
{
    (void)device, (void)error;
    const KernelShape *shape = &attention->shape;
    const double *in = qkv, *mixed = y, *all_probabilities = context, *d = dy;
    double *out = dqkv;
    memset(out, 0, shape->rows * 3 * shape->columns * sizeof(double));
    for (size_t which = 0; which < shape->rows / shape->sequence * shape->heads; which++) {
        const Head h = head_of(shape, which / shape->heads, which % shape->heads);
        for (size_t i = 0; i < h.sequence; i++) {
            const double *p = all_probabilities + h.probabilities + i * h.sequence;
            const double *di = d + h.y + i * shape->columns;
            double mean = 0; /* mean of dp under p, for the gradient of the softmax */
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

Status oracle_embedding_forward(Device *device, size_t rows, size_t columns, size_t sequence, const int32_t *tokens,
                                const void *token_table, const void *position_table, void *y, Error *error)
{
    (void)device, (void)error;
    const double *by_token = token_table, *by_position = position_table;
    double *out = y;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[i * columns + j] = by_token[(size_t)tokens[i] * columns + j] + by_position[i % sequence * columns + j];
    return STATUS_OK;
}

Status oracle_embedding_backward(Device *device, size_t rows, size_t columns, size_t sequence, const int32_t *tokens,
                                 const void *dy, void *dtoken_table, void *dposition_table, Error *error)
{
    (void)device, (void)error;
    const double *d = dy;
    double *by_token = dtoken_table, *by_position = dposition_table;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            by_token[(size_t)tokens[i] * columns + j] += d[i * columns + j];
            by_position[i % sequence * columns + j] += d[i * columns + j];
        }
    return STATUS_OK;
}

Status oracle_cross_entropy(Device *device, const Kernel *kernel, double scale, const int32_t *targets, void *logits,
                            double *loss, Error *error)
{
    (void)device, (void)error;
    const size_t rows = kernel->shape.rows, columns = kernel->shape.columns;
    double total = 0;
    for (size_t i = 0; i < rows; i++) {
        double *row = (double *)logits + i * columns;
        double largest = -INFINITY, sum = 0;
        for (size_t j = 0; j < columns; j++)
            largest = fmax(largest, row[j]);
        for (size_t j = 0; j < columns; j++)
            sum += exp(row[j] - largest);
        const double log_sum = largest + log(sum);
        total += log_sum - row[targets[i]];
        for (size_t j = 0; j < columns; j++)
            row[j] = (exp(row[j] - log_sum) - (j == (size_t)targets[i])) * scale / (double)rows;
    }
    *loss = total / (double)rows;
    return STATUS_OK;
}

Status oracle_squared_error(Device *device, size_t count, double scale, const void *y, const float *targets, void *dy,
                            double *loss, Error *error)
{
    (void)device, (void)error;
    const double *in = y;
    double *out = dy, total = 0;
    for (size_t i = 0; i < count; i++) {
        const double difference = in[i] - (double)targets[i];
        total += difference * difference;
        out[i] = 2 * difference * scale / (double)count;
    }
    *loss = total / (double)count;
    return STATUS_OK;
}
