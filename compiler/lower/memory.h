#ifndef LOWER_MEMORY_H
#define LOWER_MEMORY_H

/* The bytes that a rank holds, and the limit on them. The slots of a program are all the memory that a step uses
   besides the weights, so the result is as exact as the given sizes. */

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

typedef struct Memory {
    bool has_sizes;
    uint64_t slot[SLOT_CLASSES]; /* bytes of one slot; for weights: of each version of a stage but the first */
    /* bytes of a stage outside of slots: weights, gradients, the optimizer's state */
    uint64_t weights;
    uint64_t limit;             /* bytes per rank; 0: none */
    uint32_t limit_activations; /* per rank; 0: none */
    const char *limit_text;     /* as the user gave it */
} Memory;

/* --slot-bytes: message=N,context=N,stash=N,gradient=N,weights=N,version=N. N may end in K, M, G or T (powers of
   1024); a size that is not given is 0. --memory-limit: N in the same form, or activations=N. STATUS_BAD_USAGE says
   what is wrong. */
Status memory_set_sizes(Memory *memory, const char *text, Error *error);
Status memory_set_limit(Memory *memory, const char *text, Error *error);
/* STATUS_BAD_USAGE for a limit in bytes without sizes. */
Status memory_check_options(const Memory *memory, Error *error);

static inline bool memory_is_limited(const Memory *memory) { return memory->limit || memory->limit_activations; }

/* The sizes of the same model if it is cut into `to` stages instead of `from`. The bytes of a stage and of its saved
   activations are multiplied by from/to, a limit in activations by to/from; messages keep their size. costs_resolve
   does the same for costs. */
Memory memory_recut(const Memory *memory, uint32_t from, uint32_t to);

uint64_t memory_bytes(const Memory *memory, const RankProgram *rank);

/* Whether no rank needs more than a limit. For each limit that is exceeded, a diagnostic names the rank that needs
   most, how much that is, and the first pass or message from which on it needs that. */
bool memory_check(const Memory *memory, const Schedule *schedule, const Program *program, Diagnostics *diagnostics);

#endif
