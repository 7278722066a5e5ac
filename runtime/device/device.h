#pragma once

/* A device computes. It is a table of functions, chosen by name when the program starts. "cpu" computes in float with
   oneDNN. "cuda" and "cuda-fp32" compute on a GPU. Tests add "oracle" (tests/oracle/oracle.h), which computes in double
   in plain loops: every other device is tested against it.

   A Device belongs to one rank. It is a queue of operations, which run in the order of the calls, with its own scratch
   memory. Any number of devices may be open; each is used by one thread at a time. The same operation on the same data
   gives the same bits on any Device of that name, in any thread or process of one machine, whatever else runs.

   If `async` is NULL, an operation is done when its call returns. Otherwise the call may only enqueue the operation and
   return before it is done: then a later call reports a failure, and the host gets the results by `download` or
   `store_floats`. The host then runs a few instructions ahead, and waits for the device only at NORM and at the end of
   a run. A queue waits only for events that are already recorded, so queues cannot deadlock. Only NCCL waits for what
   is still to come, and it runs the program's own order, in which nothing is posted early.

   Numbers are of two types. Activations, their gradients, messages, and the weights that passes read have the
   COMPUTE_TYPE. The optimizer's weights (FP32 on a GPU), the gradients of weights, and the moments have the
   MASTER_TYPE. If both are the same type on a device, passes and the optimizer share one copy of the weights. Losses
   and gradient norms are always double; data are int32 tokens or float rows.

   Pointers are device memory (`allocate`) unless they are called `host_`. Matrices are row-major and dense; a row is a
   token. Unless an operation says otherwise, its outputs do not overlap its inputs. A failing operation returns
   STATUS_RUN_FAILED. */

#include "base/status.h"
#include "runtime/device/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum NumberKind { COMPUTE_TYPE, MASTER_TYPE, NUMBER_KINDS } NumberKind;

/* The kinds of kernels. A kernel is what a device prepares for operations on matrices of one shape. Kernels are made
   when a stage is opened, never in a pass. */
typedef enum KernelKind {
    KERNEL_LINEAR,
    KERNEL_NORM,
    KERNEL_GELU,
    KERNEL_ATTENTION,
    KERNEL_CROSS_ENTROPY,
    KERNEL_ROUTER,  /* for the operations route, route_backward, group_rows and count_loads */
    KERNEL_PERMUTE, /* for the operations permute, unpermute and unpermute_backward */
    KERNEL_GROUPED,
    KERNEL_SWIGLU
} KernelKind;

enum { ROUTING_GROUPS_MOST = 64 };

/* How tokens choose experts. With `groups` > 1, a token chooses experts only from `best_groups` groups: those with the
   largest sum of their two largest values of score + bias. */
typedef struct Routing {
    uint32_t experts, chosen;     /* chosen: experts per token */
    uint32_t groups, best_groups; /* groups: divides `experts`; at most ROUTING_GROUPS_MOST */
    bool softmax;                 /* scores are the softmax of the logits; false: their sigmoid */
    double factor;                /* a token's gates are its chosen scores, divided by their sum, times this factor */
} Routing;

typedef struct KernelShape {
    KernelKind kind;
    /* rows and columns of the input, with these exceptions. attention: `columns` of the output, a third of those of the
       input. swiglu: `columns` of the output, half of those of the input. grouped, and swiglu with `begins`: `rows` is
       the largest possible number of rows. permute: `rows` is the number of tokens. router: the same; `columns` is 0 */
    size_t rows, columns;
    size_t outputs; /* linear, grouped: columns of the output; else 0 */
    /* attention: rows of a sequence (`rows` is a multiple of it), and number of heads (`columns` is a multiple of it).
       router: `sequence` is the number of tokens of a sequence, `heads` is 0. Other kernels: both are 0 */
    size_t sequence, heads;
    /* The fields that operations use are, for router: all; permute: `chosen`; grouped, swiglu with `begins`: `experts`.
       Other kernels: all fields are 0 */
    Routing routing;
    /* grouped, swiglu with `begins`: how many members of an expert group (group.h) the rows come from; the rows of each
       member are sorted by expert; 0 means 1. Other kernels: 0 */
    size_t sources;
} KernelShape;

/* For grouped and swiglu. shape_blocks: the number of blocks of rows, one for each (member that sent the rows, expert).
   shape_rows: the number of rows. `begins` has the first row of each block, then the number of all rows; NULL: there
   are shape->rows rows. */
static inline size_t shape_blocks(const KernelShape *shape)
{
    return shape->routing.experts * (shape->sources ? shape->sources : 1);
}
static inline size_t shape_rows(const KernelShape *shape, const int32_t *begins)
{
    return begins ? (size_t)begins[shape_blocks(shape)] : shape->rows;
}

struct Kernel {
    KernelShape shape;
    size_t context; /* attention, norm: number of elements saved from the forward to the backward; else 0 */
    Kernel *next;   /* the next kernel in the device's list (Device.kernels) */
};

/* AdamW (Loshchilov & Hutter, 2019). The gradient is multiplied by `clip` first. `step` counts from 1 and corrects the
   bias of the moments. */
typedef struct AdamW {
    double rate, beta1, beta2, epsilon, decay, clip;
    uint64_t step;
} AdamW;

/* The two queues of a device with `async`: one for operations, one for messages. A queue waits only for events that
   were recorded before, so the two queues never wait for each other in a cycle. */
typedef enum DeviceQueue { QUEUE_COMPUTE, QUEUE_MESSAGES } DeviceQueue;

/* A position in a queue. It is reached when everything enqueued before it is done. */
typedef struct DeviceEvent DeviceEvent;

enum { DEVICE_IDENTITY = 16 };

typedef struct DeviceAsync {
    Status (*make_event)(Device *device, DeviceEvent **event, Error *error);
    void (*free_event)(Device *device, DeviceEvent *event); /* NULL is harmless */
    /* Moves the event to the present end of the queue. */
    Status (*record)(Device *device, DeviceQueue queue, DeviceEvent *event, Error *error);
    /* Everything that is enqueued in this queue later begins after the event. Any Device of this name may have
       recorded the event. */
    Status (*await)(Device *device, DeviceQueue queue, DeviceEvent *event, Error *error);
    /* Copies a block of memory; the source may belong to another Device of this name. */
    Status (*copy_block)(Device *device, DeviceQueue queue, size_t bytes, const void *source, void *destination,
                         Error *error);
    /* Like DeviceTable.accumulate, but enqueued in this queue. */
    Status (*accumulate)(Device *device, DeviceQueue queue, size_t count, const void *addend, void *sum, Error *error);
    /* Returns the CUDA stream of the queue, for a library that enqueues work itself (NCCL). After a call for
       QUEUE_MESSAGES, fused launches leave multiprocessors to the library. */
    void *(*native_queue)(Device *device, DeviceQueue queue);
    /* Writes what identifies the GPU: the same bytes in every process, different bytes for different GPUs. */
    void (*identity)(const Device *device, unsigned char identity[DEVICE_IDENTITY]);

    /* Timing events: `count` positions in the compute queue, numbered from 0. `mark` records the timing event of that
       number; the numbers may come in any order. `reached` tells whether the queue has reached the timing event, and
       fails if an operation has failed. `mark_time` gives the time of a timing event that was reached, in nanoseconds
       after event 0. */
    Status (*make_marks)(Device *device, size_t count, Error *error);
    Status (*mark)(Device *device, size_t number, Error *error);
    Status (*reached)(Device *device, size_t number, bool *reached, Error *error);
    Status (*mark_time)(Device *device, size_t number, int64_t *host_nanoseconds, Error *error);
} DeviceAsync;

/* A list bound to fixed addresses. It lives as long as the device. A device has its own type for bound lists, which
   begins with a BoundList (CudaBound). */
typedef struct BoundList {
    Device *device;
} BoundList;

/* Functions of a device that can run operations of one list at the same time, each after the operations that it depends
   on. A list is prepared once and bound once to each set of addresses; a bound list runs any number of times. The list
   must stay valid. */
typedef struct DeviceFusion {
    /* Floating-point operations of the product of a stage's rows with a square matrix of its hidden size. Below `small`
       binding the list of a single pass saves time, below `small_pair` that of an F&B or F&F. Larger products fill the
       device, and run faster one after the other. */
    double small, small_pair;
    /* Prepares all that does not depend on addresses; fills in list->prepared. op_list_finish must have been called.
       If a library transfers messages, its kernels get `share` / `whole` of the multiprocessors; 0 / 0: the device
       chooses. */
    Status (*prepare)(Device *device, OpList *list, uint32_t share, uint32_t whole, Error *error);
    /* Binds a prepared list; `bases` as in op_run. Equal addresses give the same BoundList. The memory of a BoundList
       counts in Device.bound_bytes; if there is no room for it, the list runs one operation after the other. A call
       that makes a new BoundList may wait until the compute queue is empty. */
    Status (*bind)(Device *device, const OpList *list, void *const *bases, BoundList **bound, Error *error);
    Status (*run)(BoundList *bound, Error *error);
} DeviceFusion;

typedef struct DeviceTable {
    const char *name;
    size_t size[NUMBER_KINDS];  /* bytes of a number. Equal sizes mean equal types */
    const DeviceAsync *async;   /* NULL: every operation is done when its call returns */
    const DeviceFusion *fusion; /* NULL: the operations of a list run one after the other, in its order */

    /* Whether this machine has such a device; if not, the error says what is missing. NULL: every machine has one. */
    Status (*probe)(Error *error);
    /* `index` selects one of several such devices, modulo their number. */
    Status (*open)(int index, Device **opened, Error *error);
    void (*close)(Device *device); /* device_close has freed the kernels before */
    Status (*make_kernel)(Device *device, const KernelShape *shape, Kernel **kernel, Error *error);
    void (*free_kernel)(Device *device, Kernel *kernel);

    /* Zeroed memory that starts on a cache line; 0 bytes give a valid block. `deallocate` accepts NULL. */
    Status (*allocate)(Device *device, size_t bytes, void **memory, Error *error);
    void (*deallocate)(Device *device, void *memory);

    /* Copy bytes from and to the host. These two functions and the next two return when everything enqueued in
       QUEUE_COMPUTE is done. The caller may then reuse the host's memory. */
    Status (*upload)(Device *device, size_t bytes, const void *host_source, void *destination, Error *error);
    Status (*download)(Device *device, size_t bytes, const void *source, void *host_destination, Error *error);
    /* Convert between float in the host's memory and numbers of the device. */
    Status (*load_floats)(Device *device, NumberKind kind, size_t count, const float *host_source, void *destination,
                          Error *error);
    Status (*store_floats)(Device *device, NumberKind kind, size_t count, const void *source, float *host_destination,
                           Error *error);

    /* Runs one operation of a list (operations.def); called by op_run. */
    Status (*operate)(Device *device, const Op *op, const OpMemory *memory, Error *error);

    /* The passes of a stage (F, B, I, W) do not call the functions below. */
    Status (*fill)(Device *device, NumberKind kind, size_t count, double value, void *destination, Error *error);
    Status (*copy)(Device *device, size_t bytes, const void *source, void *destination, Error *error);
    /* sum[i] += addend[i], both of the master type */
    Status (*accumulate)(Device *device, size_t count, const void *addend, void *sum, Error *error);
    /* Writes the sum of the squares of `values`, which have the master type. It is computed in double, in an order that
       depends only on `count`. */
    Status (*sum_of_squares)(Device *device, size_t count, const void *values, double *sum, Error *error);
    /* Updates the weights and moments, and zeroes the gradients. All are of the master type, except `elements`: a copy
       of the new weights for passes, of the compute type; NULL: passes read `weights`. */
    Status (*adamw)(Device *device, const AdamW *settings, size_t count, void *weights, void *gradients, void *moment1,
                    void *moment2, void *elements, Error *error);
} DeviceTable;

/* The number, time and size of the matrix products that ran while `on` was true, since the caller last set these fields
   to 0. The products of attention count only on the device "cpu". On a GPU `nanoseconds` stays 0. */
typedef struct ProductClock {
    bool on;
    uint64_t calls;
    int64_t nanoseconds;
    double operations; /* floating-point operations: 2 m n k per product */
} ProductClock;

struct Device {
    const DeviceTable *run;
    Kernel *kernels;
    ProductClock products;
    size_t bound_bytes, bound_most; /* bytes of device memory that all BoundLists take, and may take at most */
    uint64_t stages;                /* number of stages opened on this device so far */
};

/* Returns the name of a device: for "auto" that of the GPU ("cuda") if there is one, else "cpu"; a known name
   unchanged; NULL for an unknown name. */
const char *device_choose(const char *name);
/* STATUS_BAD_USAGE: unknown name; the error lists the known ones. STATUS_RUN_FAILED: the device does not start. `index`
   counts devices of one kind from 0. */
Status device_open(const char *name, int index, Device **opened, Error *error);
/* Closes the device and frees its kernels. The caller must free allocated memory before. NULL is harmless. */
void device_close(Device *device);

/* The kernel for `shape`; makes it if there is none yet. It lives as long as the device. */
Status device_kernel(Device *device, const KernelShape *shape, const Kernel **kernel, Error *error);

/* The implementations; those of GPUs are in the plug-in dprun-cuda.so. */
extern const DeviceTable device_cpu;
/* One more device, which a program adds before it opens one; NULL: none. */
extern const DeviceTable *device_added;
