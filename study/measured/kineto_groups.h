#pragma once

/* Puts the kernels of a trace into groups: the kernels of each F&B or, without F&Bs, all kernels of a GPU. Part of
   kineto_profile. */

#include "study/measured/kineto_join.h"
#include "study/measured/kineto_profile.h"

enum { NO_SPAN = UINT32_MAX };

/* What kineto_profile has found out about a kernel. */
typedef struct Resolved {
    uint32_t span; /* index of the span in KinetoProfile.spans; NO_SPAN: the kernel belongs to no component */
    /* index of the annotation of the F&B in which the kernel was launched; JOIN_NONE: it was in no F&B */
    uint32_t pair;
    uint8_t stream; /* RecipeStream */
} Resolved;

/* Makes the profile's groups, and counts the kernels in them that belong to no component. If groups are F&Bs, kernels
   outside of F&Bs are in no group. resolved: [kernel_count], for the trace's kernels, sorted by device and start. */
void kineto_make_groups(KinetoProfile *profile, const Resolved *resolved, Arena *arena);
