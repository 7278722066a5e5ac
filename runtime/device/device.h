#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

/* What computes: a table of functions, chosen by name when the program starts. "cpu" is float on oneDNN, "oracle" is
   double in plain loops, slow, against which every other device is held; "cuda" and "cuda-fp32" are a GPU.

   A Device belongs to one rank: a queue of operations, done in the order of the calls, with scratch memory of its own.
   Any number may be open at once; one is used by one thread at a time. The same operation on the same data gives the
   same bits on any Device of that name, in any thread or process of one machine, whatever runs beside it.

   Where `async` is NULL an operation is done when its call returns. Elsewhere it may only have been enqueued: what it
   failed of is then told by a later call, and the host sees its results after `download` or `store_floats`.

   Numbers are of two kinds. ELEMENTS are what passes compute with: activations, their gradients, messages, the weights
   that passes read. MASTERS are what adds up over a training: the optimizer's weights, gradients of weights, moments. A
   device may have one type for both; then the two kinds of weights are one memory. Losses and norms are double, data is
   int32 tokens or float rows, everywhere.

   Pointers are device memory (`allocate`) unless called `host_`. Matrices are row-major and dense; a row is a token.
   Unless an operation says otherwise its outputs overlap none of its inputs. An operation fails with
   STATUS_RUN_FAILED. */

#include "runtime/base/status.h"
#include "runtime/device/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum NumberKind { ELEMENTS, MASTERS, NUMBER_KINDS } NumberKind;

/* Operations on matrices of fixed shape have kernels, made when a stage is opened and never in a pass. */
typedef enum KernelKind {
    KERNEL_LINEAR,
    KERNEL_NORM,
    KERNEL_GELU,
    KERNEL_ATTENTION,
    KERNEL_CROSS_ENTROPY,
    KERNEL_ROUTER,  /* of route, route_backward, group_rows and count_loads */
    KERNEL_PERMUTE, /* of permute and unpermute */
    KERNEL_GROUPED,
    KERNEL_SWIGLU
} KernelKind;

enum { ROUTING_GROUPS_MOST = 64 };

/* How tokens choose experts. With `groups` > 1 only experts of the `best_groups` groups are chosen whose two best
   biased scores have the largest sums. */
typedef struct Routing {
    uint32_t experts, chosen;     /* chosen: of each token */
    uint32_t groups, best_groups; /* groups: at most ROUTING_GROUPS_MOST, divides experts */
    bool softmax;                 /* else sigmoid */
    double factor;
} Routing;

typedef struct KernelShape {
    KernelKind kind;
    size_t rows, columns;   /* of the input; attention: of the output, the input being three times as wide. router,
                               permute: rows are tokens. grouped: the most rows. swiglu: columns of the output */
    size_t outputs;         /* linear, grouped: columns of the output; else 0 */
    size_t sequence, heads; /* attention: sequence divides rows, heads divides columns; router: sequence; else 0 */
    Routing routing;        /* router, permute, grouped: the last two need no more than its first two; else 0 */
} KernelShape;

struct Kernel {
    KernelShape shape;
    size_t context; /* attention, norm: elements kept from forward to backward; else 0 */
    Kernel *next;   /* of the device */
};

/* Loshchilov & Hutter, 2019. `clip` multiplies the gradient first; `step` counts from 1 and corrects the moments'
   bias. */
typedef struct AdamW {
    double rate, beta1, beta2, epsilon, decay, clip;
    uint64_t step;
} AdamW;

/* What a device has that only enqueues. Its operations go to the compute queue; beside that, it has a queue for
   messages. Whoever waits, waits for something enqueued before: no order of calls makes the two queues wait for each
   other in a circle. */
typedef enum DeviceQueue { QUEUE_COMPUTE, QUEUE_MESSAGES } DeviceQueue;

/* A place in a queue, reached when all is done that was enqueued before it. */
typedef struct DeviceEvent DeviceEvent;

enum { DEVICE_IDENTITY = 16 };

typedef struct DeviceAsync {
    Status (*make_event)(Device *device, DeviceEvent **event, Error *error);
    void (*free_event)(Device *device, DeviceEvent *event); /* NULL is harmless */
    /* The event is from now on the present end of the queue. */
    Status (*record)(Device *device, DeviceQueue queue, DeviceEvent *event, Error *error);
    /* What is enqueued from now on begins after the event, which any Device of this name has recorded. */
    Status (*await)(Device *device, DeviceQueue queue, DeviceEvent *event, Error *error);
    /* The copy of a block of memory, its source perhaps of another Device of this name. */
    Status (*copy_block)(Device *device, DeviceQueue queue, size_t bytes, const void *source, void *destination,
                         Error *error);
    /* DeviceTable.accumulate on a queue. */
    Status (*accumulate)(Device *device, DeviceQueue queue, size_t count, const void *addend, void *sum, Error *error);
    /* What a library that enqueues by itself takes for the queue. */
    void *(*native_queue)(Device *device, DeviceQueue queue);
    /* Which piece of hardware it is: the same for every process, another one for every other. */
    void (*identity)(const Device *device, unsigned char identity[DEVICE_IDENTITY]);

    /* `count` places in the compute queue whose time is noted, numbered from 0: made, recorded (in any order), asked
       for (has the queue got there, so far without a failure?). The time of one that has been reached, in nanoseconds
       after mark 0. */
    Status (*make_marks)(Device *device, size_t count, Error *error);
    Status (*mark)(Device *device, size_t number, Error *error);
    Status (*reached)(Device *device, size_t number, bool *reached, Error *error);
    Status (*mark_time)(Device *device, size_t number, int64_t *host_nanoseconds, Error *error);
} DeviceAsync;

/* A list at addresses that never change. It lives as long as the device. */
typedef struct BoundList {
    Device *device; /* then comes the device's own */
} BoundList;

/* What a device has that runs operations of one list at once, each when those that it comes after are done: a list is
   prepared once, bound once to each set of addresses, and runs again and again. The list must be there as long. */
typedef struct DeviceFusion {
    /* So many floating-point operations take it about as long as the host takes to enqueue them: lists of smaller
       products are worth it even when they are no two halves. */
    double small;
    /* All that the list needs but its addresses; fills in list->prepared. The list is finished. Communication takes
       `share` in `whole` of the multiprocessors; 0 in 0: the device chooses. */
    Status (*prepare)(Device *device, OpList *list, uint32_t share, uint32_t whole, Error *error);
    /* For a prepared list whose operands are where they are said to be by op_run. Equal addresses give the same
       BoundList. Its memory counts in Device.bound_bytes; if there is no room for it, the list will run one operation
       after the other. Waits for what was called before. */
    Status (*bind)(Device *device, const OpList *list, void *const *bases, BoundList **bound, Error *error);
    Status (*run)(BoundList *bound, Error *error);
} DeviceFusion;

typedef struct DeviceTable {
    const char *name;
    size_t size[NUMBER_KINDS];  /* bytes of a number; of one size means of one type */
    const DeviceAsync *async;   /* NULL: every operation is done when its call returns */
    const DeviceFusion *fusion; /* NULL: what is overlapped runs in the order of the list */

    /* Whether this machine has one, and else what is missing; NULL: always. */
    Status (*probe)(Error *error);
    /* `index` counts devices of a kind that a machine has several of, round and round. */
    Status (*open)(int index, Device **opened, Error *error);
    void (*close)(Device *device); /* without the kernels */
    Status (*make_kernel)(Device *device, const KernelShape *shape, Kernel **kernel, Error *error);
    void (*free_kernel)(Device *device, Kernel *kernel);

    /* Memory that starts on a cache line and is zero; 0 bytes give a valid block. `deallocate` takes NULL. */
    Status (*allocate)(Device *device, size_t bytes, void **memory, Error *error);
    void (*deallocate)(Device *device, void *memory);

    /* Bytes to and from the host. These two and the next two wait for what was called before; the host's memory is the
       caller's again when they return. */
    Status (*upload)(Device *device, size_t bytes, const void *host_source, void *destination, Error *error);
    Status (*download)(Device *device, size_t bytes, const void *source, void *host_destination, Error *error);
    /* Between float in the host's memory and numbers of the device. */
    Status (*load_floats)(Device *device, NumberKind kind, size_t count, const float *host_source, void *destination,
                          Error *error);
    Status (*store_floats)(Device *device, NumberKind kind, size_t count, const void *source, float *host_destination,
                           Error *error);

    /* One operation of a list (operations.def): op_run calls it. */
    Status (*operate)(Device *device, const Op *op, const OpMemory *memory, Error *error);

    /* What passes do not use. */
    Status (*fill)(Device *device, NumberKind kind, size_t count, double value, void *destination, Error *error);
    Status (*copy)(Device *device, size_t bytes, const void *source, void *destination, Error *error);
    /* sum[i] += addend[i], both masters */
    Status (*accumulate)(Device *device, size_t count, const void *addend, void *sum, Error *error);
    /* Of masters, in double, in an order that depends on `count` alone. */
    Status (*sum_of_squares)(Device *device, size_t count, const void *values, double *sum, Error *error);
    /* Updates the weights and moments; the gradients are zero afterwards. All are masters, except that `elements` are
       the new weights as passes read them: NULL where these are the same memory. */
    Status (*adamw)(Device *device, const AdamW *settings, size_t count, void *weights, void *gradients, void *moment1,
                    void *moment2, void *elements, Error *error);
} DeviceTable;

/* The time spent in matrix products, attention's included. Counts while `on`; whoever reads it resets it. */
typedef struct ProductClock {
    bool on;
    uint64_t calls;
    int64_t nanoseconds;
    double operations; /* floating-point: 2 m n k a product */
} ProductClock;

struct Device {
    const DeviceTable *run;
    Kernel *kernels;
    ProductClock products;
    size_t bound_bytes, bound_most; /* of its memory, that bound lists take and may take */
    uint64_t stages;                /* that have been opened on it */
};

/* The name behind "auto": a GPU's where there is one. Other names stay as they are, NULL when they are none. */
const char *device_choose(const char *name);
/* STATUS_BAD_USAGE for a name that is none, with those that are; STATUS_RUN_FAILED when the device does not start.
   `index` counts devices of one kind, from 0. */
Status device_open(const char *name, int index, Device **opened, Error *error);
/* With its kernels; what was allocated is the caller's to free before. NULL is harmless. */
void device_close(Device *device);

/* The kernel for `shape`, made when none is there. It lives as long as the device. */
Status device_kernel(Device *device, const KernelShape *shape, const Kernel **kernel, Error *error);

/* The implementations. */
extern const DeviceTable device_cpu, device_oracle, device_cuda, device_cuda_fp32;

#endif
