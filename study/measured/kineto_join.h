#pragma once

/* Finds the annotation in which a kernel was launched. Annotations are on the CPU's side only. So the kernel's launch
   is found by its correlation number, and the innermost annotation around the launch by the launch's time. Autograd
   launches kernels from a thread of its own, which has no annotations: if no annotation of the launch's thread is
   around the launch, those of the process's other threads are searched. */

#include "study/measured/kineto_map.h"
#include "study/measured/kineto_read.h"

/* An annotation that has a meaning in the map. */
typedef struct JoinRange {
    int64_t start, end;
    uint32_t process, thread;
    uint32_t outer;  /* index of the innermost annotation around this one on its thread; JOIN_NONE: there is none */
    uint8_t subject; /* MapRule.subject of its rule */
    MapNumbers numbers;
} JoinRange;

enum { JOIN_NONE = UINT32_MAX };

/* The annotations that have a meaning in a map. */
typedef struct JoinRanges {
    JoinRange *ranges; /* sorted by process, thread and start */
    uint32_t count;
    uint32_t *threads; /* [thread_count + 1]: index of the first range of each thread */
    uint32_t thread_count;
} JoinRanges;

/* Lists the annotations whose meaning in the map is one of the subjects `first` to `last`. */
JoinRanges join_ranges(const KinetoTrace *trace, const KinetoMap *map, unsigned first, unsigned last, Arena *arena);
/* The index of the innermost range around the launch; JOIN_NONE: there is none. If no range of the launch's thread
   contains the launch, those of the other threads of its process are searched. */
uint32_t join_find(const JoinRanges *ranges, const KinetoLaunch *launch);
