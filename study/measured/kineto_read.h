#pragma once

/* Reads a trace of the PyTorch profiler (Kineto's Chrome form) as a stream. Keeps the kernels, their launches and the
   annotations, a few tens of bytes each. Times are in whole nanoseconds; if the trace gives its base time, they count
   from the epoch of the machine's clock. A PyTorch without Kineto writes no categories: there, all that runs on the CPU
   counts as an annotation, and no kernel has a launch. */

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KINETO_NO_STREAM = UINT16_MAX };

/* A kernel, or a copy or fill of memory, on a stream of a GPU. */
typedef struct KinetoKernel {
    int64_t start, end;
    uint32_t name;           /* index in KinetoTrace.names */
    uint32_t correlation;    /* the number that the kernel and its launch have in common; 0: not given */
    uint32_t blocks;         /* number of blocks of the kernel's grid; 0: not given */
    uint16_t device, stream; /* stream: KINETO_NO_STREAM: not given */
} KinetoKernel;

/* A call of the CUDA runtime or driver (or HIP's), such as the launch of a kernel. */
typedef struct KinetoLaunch {
    int64_t time;
    uint32_t correlation, process, thread;
    /* of_kernel: the call launches a kernel; met: a kernel in the trace has its correlation number */
    bool of_kernel, met;
} KinetoLaunch;

/* An annotation: a range of time that the user marked with record_function. */
typedef struct KinetoAnnotation {
    int64_t start, end;
    uint32_t name, process, thread;
} KinetoAnnotation;

typedef struct KinetoTrace {
    const char *path;
    KinetoKernel *kernels;  /* sorted by device, stream and start; those of one stream do not overlap */
    KinetoLaunch *launches; /* sorted by correlation */
    KinetoAnnotation *annotations;
    size_t kernel_count, launch_count, annotation_count;
    /* [name_count]: the names of kernels and annotations, each once; characters that cannot be printed are replaced */
    const char **names;
    uint32_t name_count;
    size_t incomplete;   /* number of kernels, launches and annotations without a time >= 0, which are left out */
    size_t begun;        /* number of events whose begin and end are two events (ph B and E), which are left out */
    size_t orphans;      /* number of kernels without a launch */
    size_t lost;         /* number of launches of kernels that are not in the trace */
    size_t cut;          /* number of kernels that lasted into the next one of their stream, and end at its start */
    double cut_time;     /* by how much the `cut` kernels together were cut, in ns */
    int64_t rank, world; /* rank and number of ranks, from distributedInfo; -1: not given */
    /* number of multiprocessors of the first device in the file; 0: not given, or not a possible number */
    uint32_t multiprocessors;
    const char *device; /* name of device 0; "": not given */
} KinetoTrace;

/* Reads the trace at `path`. The arena owns all memory. STATUS_BAD_INPUT: the error names the file and what is wrong.
   */
Status kineto_read(const char *path, Arena *arena, KinetoTrace *trace, Error *error);

/* The launch of a kernel; NULL: it is not in the trace. */
KinetoLaunch *kineto_launch(const KinetoTrace *trace, const KinetoKernel *kernel);

/* What the reader has left out, cut or missed, as text with a line for each; "": nothing. The arena owns it. */
const char *kineto_notes(const KinetoTrace *trace, Arena *arena);

/* Widens the interval *start..*end so that it contains the kernel. */
static inline void kernel_widen(int64_t *start, int64_t *end, const KinetoKernel *kernel)
{
    *start = kernel->start < *start ? kernel->start : *start;
    *end = kernel->end > *end ? kernel->end : *end;
}
