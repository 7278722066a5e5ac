#ifndef MEASURED_KINETO_GROUPS_H
#define MEASURED_KINETO_GROUPS_H

/* Puts the kernels of a trace into groups: F&Bs, or everything that a GPU ran. Part of kineto_profile. */

#include "compiler/measured/kineto_join.h"
#include "compiler/measured/kineto_profile.h"

enum { NO_SPAN = UINT32_MAX };

/* What is known of a kernel. */
typedef struct Resolved {
    uint32_t span;  /* or NO_SPAN */
    uint32_t pair;  /* the index of the annotation of the F&B in which the kernel was launched; JOIN_NONE: in none */
    uint8_t stream; /* RecipeStream */
} Resolved;

/* Makes the profile's groups and counts the kernels that belong to no component. resolved: [kernel_count], for the
   trace's kernels in the order of their devices and starts. */
void kineto_make_groups(KinetoProfile *profile, const Resolved *resolved, Arena *arena);

#endif
