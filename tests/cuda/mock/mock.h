#pragma once

/* A mock CUDA runtime without a GPU, linked under the plug-in in place of the real one (`cuda_runtime`, `cuda_images`).
   Its streams are lists of operations, which run in an order that streams and events allow (MockOrder). Its kernels are
   the CPU device's functions. It records every access of every operation to GPU memory. Two accesses to the same
   memory, of which one is a write, are a race if neither stream order nor events order them, in whatever order they
   ran. */

#include "runtime/cuda/runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum MockOrder {
    MOCK_LATE,  /* an operation runs when a thread waits for it */
    MOCK_EARLY, /* an operation runs as soon as it is enqueued, if it can */
    /* after each enqueue up to two operations of random streams run (`seed`); the others run late */
    MOCK_RANDOM,
} MockOrder;

typedef struct MockSetting {
    MockOrder order;
    uint64_t seed;
    CudaError count_error; /* what GetDeviceCount returns */
    int devices;           /* number of devices; 0: one, -1: none */
    int first_device;      /* the machine's index of the first device */
    int driver_version;    /* 0: no driver */
    int major, minor;      /* compute capability; 0.0: 8.0 */
    /* number, from 1, of the first call that fails; without `sticky` it is the only one. A call that fails does
       nothing, except that it frees what it must free. 0: no call fails */
    size_t fail_at;
    bool sticky;       /* all later calls fail as well */
    bool forget_waits; /* StreamWaitEvent does nothing; the mock must then report races */
    /* the number, from 1, of an operation of fused launches that loses its dependences; 0: none */
    size_t forget_after;
    bool dry;                          /* kernels do nothing, so operands need not be memory */
    int multiprocessors, shared_bytes; /* 0: 4, 227 KiB */
} MockSetting;

/* Starts a run. Everything that the previous run made must have been freed. */
void mock_begin(const MockSetting *setting);

typedef struct MockReport {
    size_t calls;
    size_t live;  /* number of memory blocks, streams, events and libraries that are not freed */
    size_t bytes; /* bytes of the memory blocks that are not freed */
    size_t launches, copies;
    size_t clustered;            /* launches in clusters of several blocks */
    size_t fused;                /* fused launches */
    unsigned operations, blocks; /* of the last fused launch */
    const char *failed;          /* the call that failed on request, without "cuda"; NULL: none */
    size_t races;                /* races, other violations of order, and fused launches with a wrong table */
    char first_race[256];
} MockReport;
MockReport mock_report(void);

/* --- for libraries that enqueue operations themselves --- */

typedef struct MockAccess {
    const void *memory;
    size_t bytes;
    bool writes;
} MockAccess;

/* Enqueues an operation of a library. When it is the next one of its stream, `attempt` is called until it returns true,
   perhaps many times. Then `data` is freed. */
void mock_enqueue(CudaStream *stream, bool (*attempt)(void *data), void *data, const MockAccess *accesses,
                  size_t count);
/* Takes ownership of `memory`, and frees it when the next run begins. */
void mock_at_end(void *memory);

/* --- kernels.c --- */

enum { MOCK_OPERANDS = 12 };

typedef struct MockOperand {
    size_t offset; /* offset of the pointer in the parameters */
    size_t count;
    size_t size; /* bytes of one number; 0: it is an element of 2 or 4 bytes, as the suffix of the kernel's name says */
    bool read, written;
} MockOperand;

typedef struct MockKernel {
    const char *name; /* name without the suffix _f32 or _bf16 */
    size_t parameter_bytes;
    /* Lists the memory that a launch with `parameters` accesses, and returns the number of entries. Pointers in
       `parameters` may be NULL. The function is NULL for a fused launch. */
    size_t (*operands)(const void *parameters, MockOperand *operands);
    /* Runs the kernel; elements are floats. */
    void (*run)(const void *parameters);
    const char *file;
} MockKernel;

/* The kernel of that name; NULL: there is none. Writes the bytes of one element, 2 or 4, to `element_size`. */
const MockKernel *mock_kernel(const char *full_name, size_t *element_size);
/* Whether the kernel is in the machine code of this unit. Names of units: product.bf16, hopper. */
bool mock_is_in(const char *unit, const MockKernel *kernel, const char *full_name);
void mock_run(const MockKernel *kernel, size_t element_size, const void *parameters);
void mock_kernels_end(void);
