#ifndef MEASURED_KINETO_PROFILE_H
#define MEASURED_KINETO_PROFILE_H

/* The times of the components of a layer in a trace of the PyTorch profiler. A kernel belongs to the component of
   the annotation in which it was launched. On a stream without annotated kernels, its component follows from its
   position in the cycle of first kernels; else from its name (kineto_map.h). */

#include "compiler/measured/kineto_map.h"
#include "compiler/measured/kineto_read.h"
#include "runtime/program/recipe_times.h"

/* One run of a component: from the start of its first kernel to the end of its last. */
typedef struct ProfileSpan {
    int64_t start, end; /* ns */
    /* start of its first kernel that moves data, end of the last one; equal: it has no such kernel */
    int64_t data_start, data_end;
    uint32_t group; /* of KinetoProfile.groups */
    /* number of earlier spans of the same component in the group: the layer, counted from 0 */
    uint32_t layer;
    uint8_t subject;
} ProfileSpan;

/* An F&B on one GPU; or, if the trace has no annotations of F&Bs, all kernels of a GPU. */
typedef struct ProfileGroup {
    int64_t start, end;
    /* ns in which each stream runs kernels; both: in which both streams do; idle: in which none does */
    int64_t busy[RECIPE_STREAMS], both, idle;
    uint16_t device;
} ProfileGroup;

/* How the components were found. Several bits may be set, because streams differ. */
enum { FOUND_BY_ANNOTATION = 1, FOUND_BY_CYCLE = 2, FOUND_BY_NAME = 4 };

typedef struct KinetoProfile {
    const KinetoTrace *trace;
    const KinetoMap *map;
    ProfileSpan *spans; /* by group and start */
    uint32_t span_count;
    ProfileGroup *groups;
    uint32_t group_count;
    bool has_pairs;          /* groups are F&Bs */
    uint32_t layers;         /* layers in a group: the most spans that a component has in any group */
    uint32_t blocks;         /* blocks of the grids in which communication spends most time; each takes a
                                multiprocessor; 0: unknown */
    unsigned found;          /* FOUND_BY_... */
    size_t kernels, orphans; /* orphans: kernels without a launch in the trace */
    size_t foreign;          /* number of kernels in groups that belong to no component */
    int64_t foreign_time;    /* time of these foreign kernels */
} KinetoProfile;

/* Makes the profile of a trace, and sorts the kernels and launches of the trace. The arena owns all memory.
   STATUS_BAD_INPUT: no kernel belongs to a component. */
Status kineto_profile(const KinetoTrace *trace, const KinetoMap *map, Arena *arena, KinetoProfile *profile,
                      Error *error);

/* The group of median length. */
uint32_t kineto_typical_group(const KinetoProfile *profile, Arena *arena);
/* The spans of a group as two streams, in milliseconds from its start on. */
RecipeTimes kineto_recipe_times(const KinetoProfile *profile, uint32_t group, Arena *arena);

#endif
