#ifndef TESTS_CUDA_STANDIN_H
#define TESTS_CUDA_STANDIN_H

/* A CUDA runtime without a GPU, linked in the place of the real one (`cuda_runtime`, `cuda_images`). Its streams are
   lists of operations that run when somebody waits for them, in any order that streams and events allow; its kernels
   are the CPU device's functions. It notes every access of every operation: two of them, one a write, that neither
   stream order nor events put one after the other are a race, in whatever order they ran. */

#include "runtime/device/cuda_runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum StandinOrder {
    STANDIN_LATE,   /* an operation runs when somebody waits for it */
    STANDIN_EARLY,  /* as soon as it is enqueued */
    STANDIN_RANDOM, /* between these, by `seed` */
} StandinOrder;

typedef struct StandinSetting {
    StandinOrder order;
    uint64_t seed;
    CudaError count_error; /* of GetDeviceCount; */
    int devices;           /* else it says so many; 0: one, -1: none */
    int first_device;      /* and the first of them is this one of the machine */
    int driver_version;    /* 0: no driver */
    int major, minor;      /* compute capability; 0.0: 8.0 */
    size_t fail_at;        /* this call of all, from 1, fails and does nothing; 0: none */
    bool sticky;           /* and so do all after it */
    bool forget_waits;     /* StreamWaitEvent does nothing: what must then be noticed */
    size_t forget_after;   /* in fused launches this operation, from 1, comes after nothing: and that; 0: none */
    bool dry;              /* kernels do nothing: operands need not be memory */
    int multiprocessors, shared_bytes; /* 0: 4, 227 KiB */
} StandinSetting;

/* Starts afresh: nothing may be left of a run before. */
void standin_begin(const StandinSetting *setting);

typedef struct StandinReport {
    size_t calls;
    size_t live;  /* memory, streams, events, libraries not given back */
    size_t bytes; /* of this memory */
    size_t launches, copies;
    size_t clustered;            /* of them, in clusters of several blocks */
    size_t fused;                /* of them, fused ones; */
    unsigned operations, blocks; /* of the last of these */
    const char *failed;          /* the call that was made to fail, without its "cuda"; NULL: none */
    size_t races;                /* and other breaches of order */
    char first_race[256];
} StandinReport;
StandinReport standin_report(void);

/* --- for a library that enqueues by itself --- */

typedef struct StandinAccess {
    const void *memory;
    size_t bytes;
    bool writes;
} StandinAccess;

/* Tried when it is the first of its stream, perhaps often, until it returns true. `data` is freed afterwards. */
void standin_enqueue(CudaStream *stream, bool (*attempt)(void *data), void *data, const StandinAccess *accesses,
                     size_t count);
/* Freed when the next run begins. */
void standin_at_end(void *memory);

/* --- kernels.c --- */

enum { STANDIN_OPERANDS = 12 };

typedef struct StandinOperand {
    size_t offset; /* of the pointer in the parameters */
    size_t count;
    size_t size; /* of one; 0: of an element, 2 or 4 */
    bool read, written;
} StandinOperand;

typedef struct StandinKernel {
    const char *name; /* without suffix */
    size_t parameter_bytes;
    /* What it touches; `parameters` may have NULL there. Returns how many. NULL: a fused launch. */
    size_t (*operands)(const void *parameters, StandinOperand *operands);
    /* Elements are float here. */
    void (*run)(const void *parameters);
    const char *file;
} StandinKernel;

/* NULL for a name that is none; `element_size` is 2 or 4. */
const StandinKernel *standin_kernel(const char *full_name, size_t *element_size);
/* Whether it is in the machine code of this unit: product.bf16, hopper. */
bool standin_is_in(const char *unit, const StandinKernel *kernel, const char *full_name);
void standin_run(const StandinKernel *kernel, size_t element_size, const void *parameters);
void standin_kernels_end(void);

#endif
