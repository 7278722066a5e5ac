/* The oracle device: its memory, its kernels, its optimizer. */

#include "tests/oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static Status open_oracle(int index, Device **opened, Error *error)
{
    (void)index;
    *opened = calloc(1, sizeof **opened);
    return *opened ? STATUS_OK : error_set(error, STATUS_RUN_FAILED, "out of memory");
}

static void close_oracle(Device *device) { free(device); }

static Status make_kernel(Device *device, const KernelShape *shape, Kernel **kernel, Error *error)
{
    (void)device;
    *kernel = calloc(1, sizeof **kernel);
    if (!*kernel)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    if (shape->kind == KERNEL_ATTENTION)
        (*kernel)->context = shape->rows * shape->heads * shape->sequence; /* all probabilities */
    if (shape->kind == KERNEL_NORM)
        (*kernel)->context = 2 * shape->rows;
    return STATUS_OK;
}

static void free_kernel(Device *device, Kernel *kernel)
{
    (void)device;
    free(kernel);
}

static Status load_floats(Device *device, NumberKind kind, size_t count, const float *source, void *destination,
                          Error *error)
{
    (void)device, (void)kind, (void)error;
    double *elements = destination;
    for (size_t i = 0; i < count; i++)
        elements[i] = (double)source[i];
    return STATUS_OK;
}

static Status store_floats(Device *device, NumberKind kind, size_t count, const void *source, float *destination,
                           Error *error)
{
    (void)device, (void)kind, (void)error;
    const double *elements = source;
    for (size_t i = 0; i < count; i++)
        destination[i] = (float)elements[i];
    return STATUS_OK;
}

static Status fill(Device *device, NumberKind kind, size_t count, double value, void *destination, Error *error)
{
    (void)device, (void)kind, (void)error;
    double *elements = destination;
    for (size_t i = 0; i < count; i++)
        elements[i] = value;
    return STATUS_OK;
}

static Status accumulate(Device *device, size_t count, const void *addend, void *sum, Error *error)
{
    (void)device, (void)error;
    const double *a = addend;
    double *s = sum;
    for (size_t i = 0; i < count; i++)
        s[i] += a[i];
    return STATUS_OK;
}

static Status sum_of_squares(Device *device, size_t count, const void *values, double *sum, Error *error)
{
    (void)device, (void)error;
    const double *elements = values;
    *sum = 0;
    for (size_t i = 0; i < count; i++)
        *sum += elements[i] * elements[i];
    return STATUS_OK;
}

static Status adamw(Device *device, const AdamW *settings, size_t count, void *parameters, void *gradients,
                    void *moment1, void *moment2, void *elements, Error *error)
{
    (void)device, (void)elements, (void)error;
    double *p = parameters, *g = gradients, *m = moment1, *v = moment2;
    for (size_t i = 0; i < count; i++) {
        const double gradient = settings->clip * g[i];
        m[i] = settings->beta1 * m[i] + (1 - settings->beta1) * gradient;
        v[i] = settings->beta2 * v[i] + (1 - settings->beta2) * gradient * gradient;
        const double mean = m[i] / (1 - pow(settings->beta1, (double)settings->step));
        const double square = v[i] / (1 - pow(settings->beta2, (double)settings->step));
        p[i] -= settings->rate * (mean / (sqrt(square) + settings->epsilon) + settings->decay * p[i]);
        g[i] = 0;
    }
    return STATUS_OK;
}

ORACLE(from_floats) { return load_floats(device, COMPUTE_TYPE, op->count, o->source, o->elements, error); }

ORACLE(to_floats) { return store_floats(device, COMPUTE_TYPE, op->count, o->elements, o->destination, error); }

ORACLE(copy) { return device_cpu.copy(device, op->count, o->source, o->destination, error); }

ORACLE(add) { return accumulate(device, op->count, o->addend, o->sum, error); }

#define OPERATION_FUNCTION(name) oracle_##name
#include "runtime/device/operate.h"

/* Adds the oracle to the devices of the program. What handles bytes is the CPU device's. */
__attribute__((constructor)) static void add_oracle(void)
{
    static DeviceTable oracle = {
        .name = "oracle",
        .size = {sizeof(double), sizeof(double)},
        .open = open_oracle,
        .close = close_oracle,
        .make_kernel = make_kernel,
        .free_kernel = free_kernel,
        .load_floats = load_floats,
        .store_floats = store_floats,
        .operate = operate,
        .fill = fill,
        .accumulate = accumulate,
        .sum_of_squares = sum_of_squares,
        .adamw = adamw,
    };
    oracle.allocate = device_cpu.allocate;
    oracle.deallocate = device_cpu.deallocate;
    oracle.upload = oracle.download = oracle.copy = device_cpu.copy;
    device_added = &oracle;
}
