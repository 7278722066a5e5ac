#pragma once

/* Finds the times of the components of a layer in a trace of the PyTorch profiler. A kernel that was launched in the
   annotation of a component belongs to this component. If a stream has no kernel with such an annotation, and the map
   has a cycle of first kernels for the stream, the cycle gives the components of its kernels. Otherwise the name of the
   kernel gives its component (kineto_map.h). */

#include "study/measured/kineto_map.h"
#include "study/measured/kineto_read.h"
#include "program/times/recipe_times.h"

/* One run of a component, from the start of its first kernel to the end of its last one. */
typedef struct ProfileSpan {
    int64_t start, end; /* ns */
    /* start of the run's first kernel that moves data, and end of the last such kernel; both equal: there is none */
    int64_t data_start, data_end;
    uint32_t group; /* index in KinetoProfile.groups */
    /* the layer, from 0: the number of earlier spans of the same component in the group */
    uint32_t layer;
    uint8_t subject;
} ProfileSpan;

/* The kernels of an F&B on one GPU or, if the trace has no annotations of F&Bs, all kernels of a GPU. */
typedef struct ProfileGroup {
    int64_t start, end;
    /* all in ns. busy: time in which a stream runs kernels; both: in which both streams do; idle: in which none does
       */
    int64_t busy[RECIPE_STREAMS], both, idle;
    uint16_t device;
} ProfileGroup;

/* How the components of kernels were found, for all kernels together. A kernel outside all annotations is found by the
   cycle if its stream has a cycle and no annotations, otherwise by its name. So several bits may be set. */
enum { FOUND_BY_ANNOTATION = 1, FOUND_BY_CYCLE = 2, FOUND_BY_NAME = 4 };

typedef struct KinetoProfile {
    const KinetoTrace *trace;
    const KinetoMap *map;
    ProfileSpan *spans; /* sorted by group and start */
    uint32_t span_count;
    ProfileGroup *groups;
    uint32_t group_count;
    bool has_pairs;  /* the groups are F&Bs, not GPUs */
    uint32_t layers; /* number of layers: the most spans that a component has in any group */
    /* grid size, in blocks, in which communication spends most time; each block takes a multiprocessor; 0: unknown */
    uint32_t blocks;
    unsigned found;       /* FOUND_BY_... */
    size_t foreign;       /* number of kernels that are in a group but belong to no component */
    int64_t foreign_time; /* time of the `foreign` kernels together, in ns */
} KinetoProfile;

/* Makes the profile of a trace. Also sorts the kernels of the trace by device and start. The arena owns all memory.
   STATUS_BAD_INPUT: no kernel belongs to a component, or the map's lines NAME.first are too many or lack a line that
   says which kernels communicate. */
Status kineto_profile(const KinetoTrace *trace, const KinetoMap *map, Arena *arena, KinetoProfile *profile,
                      Error *error);

/* The index of the group of median length. */
uint32_t kineto_typical_group(const KinetoProfile *profile, Arena *arena);
/* The spans of a group as two streams, in milliseconds from the start of the group. */
RecipeTimes kineto_recipe_times(const KinetoProfile *profile, uint32_t group, Arena *arena);
