#ifndef MEASURED_KINETO_READ_H
#define MEASURED_KINETO_READ_H

/* A trace of the PyTorch profiler (Kineto's Chrome form), read as a stream. It keeps the kernels, their launches,
   and the annotations, a few tens of bytes each. Times are in nanoseconds, since the epoch of the machine's clock if
   the trace has its base. */

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* A kernel, or a copy or fill of memory, on a stream of a GPU. */
typedef struct KinetoKernel {
    int64_t start, end;
    uint32_t name;        /* of KinetoTrace.names */
    uint32_t correlation; /* with its launch; 0: not given */
    uint32_t blocks;      /* of its grid; 0: not given */
    uint16_t device, stream;
} KinetoKernel;

/* A call of the CUDA runtime or driver. */
typedef struct KinetoLaunch {
    int64_t time;
    uint32_t correlation, process, thread;
} KinetoLaunch;

/* A record_function of the user. */
typedef struct KinetoAnnotation {
    int64_t start, end;
    uint32_t name, process, thread;
} KinetoAnnotation;

typedef struct KinetoTrace {
    const char *path;
    KinetoKernel *kernels;
    KinetoLaunch *launches;
    KinetoAnnotation *annotations;
    size_t kernel_count, launch_count, annotation_count;
    const char **names; /* [name_count], each once, printable */
    uint32_t name_count;
    size_t incomplete;        /* kernels, launches and annotations without a time; they are left out */
    int64_t rank, world;      /* from distributedInfo; -1: not given */
    uint32_t multiprocessors; /* of device 0; 0: not given */
    const char *device;       /* its name; "": not given */
} KinetoTrace;

/* The arena owns all memory. STATUS_BAD_INPUT names the file, the position and what is wrong. */
Status kineto_read(const char *path, Arena *arena, KinetoTrace *trace, Error *error);

/* Widens an interval to contain the kernel. */
static inline void kernel_widen(int64_t *start, int64_t *end, const KinetoKernel *kernel)
{
    *start = kernel->start < *start ? kernel->start : *start;
    *end = kernel->end > *end ? kernel->end : *end;
}

#endif
