#ifndef MEASURED_KINETO_GROUPS_H
#define MEASURED_KINETO_GROUPS_H

/* The kernels of a trace as groups: F&Bs, or all that a GPU ran. Part of kineto_profile. */

#include "compiler/measured/kineto_join.h"
#include "compiler/measured/kineto_profile.h"

enum { NO_SPAN = UINT32_MAX };

/* What became of a kernel. */
typedef struct Resolved {
    uint32_t span;  /* NO_SPAN */
    uint32_t pair;  /* the F&B's annotation, by number; JOIN_NONE */
    uint8_t stream; /* RecipeStream */
} Resolved;

/* Makes the profile's groups and counts what is of no component. resolved: [kernel_count], of the trace's kernels in
   the order of their devices and starts. */
void kineto_make_groups(KinetoProfile *profile, const Resolved *resolved, Arena *arena);

#endif
