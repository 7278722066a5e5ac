#pragma once

/* Which instruction a rank runs now. Read by another thread, a signal handler, or the process that guards this one. */

#include "base/mesh.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Progress {
    _Atomic uint64_t place;  /* step << 32 | index of the instruction; PROGRESS_IDLE between steps */
    _Atomic bool evaluating; /* the rank runs only the forwards of the program, on held-out data */
    _Atomic int member;      /* number of the member in the mesh; -1: not known yet */
    char apart[48];          /* pads the struct to a cache line, so that each rank writes a cache line of its own */
} Progress;
#define PROGRESS_IDLE UINT64_MAX

/* Functions of the executor that put a rank's progress into words for the launcher, which does not know the program. */
typedef struct ProgressWords {
    Mesh mesh; /* for mesh_name, the name of a member */
    const void *program;
    /* Writes "instruction 3 (F1 m0 ..., zb-h1.dps:12)", or "" between steps. A signal handler may call it: it does not
       allocate and takes no lock. */
    void (*place)(const void *program, const Progress *progress, char *text, size_t size);
    /* The member at the other end of the message that this rank waits for; -1: it is not at a WAIT. */
    int (*awaited)(const void *program, const Progress *progress);
} ProgressWords;

static inline void progress_reset(Progress *progress, int member)
{
    atomic_store(&progress->place, PROGRESS_IDLE);
    atomic_store(&progress->member, member);
}
