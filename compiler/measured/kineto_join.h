#ifndef MEASURED_KINETO_JOIN_H
#define MEASURED_KINETO_JOIN_H

/* Finds the annotation in which a kernel was launched. Annotations are only on the CPU's side: a kernel is joined to
   its launch by correlation, and the launch to the innermost annotation around its time. Autograd launches from a
   thread of its own without annotations: if the launch's thread has none, all threads of the process are searched. */

#include "compiler/measured/kineto_map.h"
#include "compiler/measured/kineto_read.h"

/* An annotation that has a meaning in the map. */
typedef struct JoinRange {
    int64_t start, end;
    uint32_t process, thread;
    uint32_t outer;  /* the index of the innermost annotation around this one on its thread, or JOIN_NONE */
    uint8_t subject; /* as in the map */
    MapNumbers numbers;
} JoinRange;

enum { JOIN_NONE = UINT32_MAX };

/* The annotations that have a meaning in a map. */
typedef struct JoinRanges {
    JoinRange *ranges; /* by process, thread and start */
    uint32_t count;
    uint32_t *threads; /* [thread_count + 1]: the first range of each thread */
    uint32_t thread_count;
} JoinRanges;

typedef struct KinetoJoin {
    const KinetoTrace *trace;
    const KinetoLaunch *launches; /* by correlation */
} KinetoJoin;

/* Sorts the trace's launches. */
KinetoJoin kineto_join(const KinetoTrace *trace);
/* The launch of a kernel; NULL: the trace does not have it. */
const KinetoLaunch *kineto_launch(const KinetoJoin *join, const KinetoKernel *kernel);

/* The annotations whose meaning in the map is one of the subjects `first` to `last`. */
JoinRanges join_ranges(const KinetoTrace *trace, const KinetoMap *map, unsigned first, unsigned last, Arena *arena);
/* The index of the innermost range around the launch, or JOIN_NONE. If no range of the thread of the launch contains
   it, ranges of the other threads of its process count. */
uint32_t join_find(const JoinRanges *ranges, const KinetoLaunch *launch);

#endif
