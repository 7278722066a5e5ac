#pragma once

/* A device and the oracle, and tensors on both. */

#include "tests/device/run_op.h"
#include "tests/test.h"
#include "runtime/device/device.h"
#include "runtime/model/random.h"

#include <math.h>
#include <stdlib.h>

enum { TESTED, ORACLE, DEVICES };
static Device *devices[DEVICES];
static uint64_t next_key;

#define OK(call)                                                \
    do {                                                        \
        Error error = {""};                                     \
        if ((call) != STATUS_OK)                                \
            fail_msg("%s:%d: %s", #call, __LINE__, error.text); \
    } while (0)

/* Opens the CPU device and the oracle, for a group of tests. */
static inline int open_cpu_and_oracle(void **state)
{
    (void)state;
    Error error = {""};
    return device_open("cpu", 0, &devices[TESTED], &error) || device_open("oracle", 0, &devices[ORACLE], &error);
}

static inline int close_pair(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        device_close(devices[d]);
    return 0;
}

typedef struct Tensor {
    NumberKind kind;
    size_t count;
    void *at[DEVICES];
} Tensor;

/* Makes a tensor on both devices with these values, rounded to what the tested device can represent. `values` gets the
   rounded values. release() frees the tensor. */
static inline Tensor tensor_of(NumberKind kind, size_t count, float *values)
{
    Tensor tensor = {.kind = kind, .count = count};
    for (int d = 0; d < DEVICES; d++) {
        const DeviceTable *run = devices[d]->run;
        OK(run->allocate(devices[d], count * run->size[kind], &tensor.at[d], &error));
        OK(run->load_floats(devices[d], kind, count, values, tensor.at[d], &error));
        OK(run->store_floats(devices[d], kind, count, tensor.at[d], values, &error));
    }
    return tensor;
}

static inline Tensor filled(NumberKind kind, size_t count, float deviation, float offset)
{
    float *values = malloc(count * sizeof *values + 1);
    next_key++;
    for (size_t i = 0; i < count; i++)
        values[i] = offset + deviation * random_normal(next_key, i);
    const Tensor tensor = tensor_of(kind, count, values);
    free(values);
    return tensor;
}

static inline Tensor normal(size_t count) { return filled(COMPUTE_TYPE, count, 1, 0); }
static inline Tensor poisoned(NumberKind kind, size_t count) { return filled(kind, count, 0, NAN); }

static inline void release(Tensor tensor)
{
    for (int d = 0; d < DEVICES; d++)
        devices[d]->run->deallocate(devices[d], tensor.at[d]);
}

static inline void kernels_for(KernelShape shape, const Kernel **kernels)
{
    for (int d = 0; d < DEVICES; d++)
        OK(device_kernel(devices[d], &shape, &kernels[d], &error));
}

/* BOTH and BOTH_OP call a function, or run an operation, on both devices. The arguments may use `d`, the index of the
   device; those of BOTH also `device`. */
#define BOTH(...)                       \
    for (int d = 0; d < DEVICES; d++) { \
        Device *device = devices[d];    \
        OK(device->run->__VA_ARGS__);   \
    }
#define BOTH_OP(...)                                 \
    for (int d = 0; d < DEVICES; d++) {              \
        OK(RUN_OP(devices[d], &error, __VA_ARGS__)); \
    }
