#ifndef MEASURED_KINETO_JOIN_H
#define MEASURED_KINETO_JOIN_H

/* In which annotation a kernel was launched. Annotations are on the CPU's side only: a kernel is joined to its launch
   by correlation, the launch to the innermost annotation around its time. Autograd launches from a thread of its own,
   which has no annotations: what its own thread does not have is looked for on all threads of the process. */

#include "compiler/measured/kineto_map.h"
#include "compiler/measured/kineto_read.h"

/* A chosen annotation. */
typedef struct JoinRange {
    int64_t start, end;
    uint32_t process, thread;
    uint32_t outer;  /* the one around it on its thread, by number; JOIN_NONE */
    uint8_t subject; /* of the map */
    MapNumbers numbers;
} JoinRange;

enum { JOIN_NONE = UINT32_MAX };

/* The annotations that a map gives a meaning to. */
typedef struct JoinRanges {
    JoinRange *ranges; /* by process, thread and start */
    uint32_t count;
    uint32_t *threads; /* [thread_count + 1]: where the ranges of each thread begin */
    uint32_t thread_count;
} JoinRanges;

typedef struct KinetoJoin {
    const KinetoTrace *trace;
    const KinetoLaunch *launches; /* by correlation */
} KinetoJoin;

/* Sorts the trace's launches. */
KinetoJoin kineto_join(const KinetoTrace *trace);
/* The launch of a kernel; NULL: it is not in the trace. */
const KinetoLaunch *kineto_launch(const KinetoJoin *join, const KinetoKernel *kernel);

/* The annotations whose subject is in [first, last]. */
JoinRanges join_ranges(const KinetoTrace *trace, const KinetoMap *map, unsigned first, unsigned last, Arena *arena);
/* The innermost of them around the launch, by number; JOIN_NONE: none. */
uint32_t join_find(const JoinRanges *ranges, const KinetoLaunch *launch);

#endif
