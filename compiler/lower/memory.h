#ifndef LOWER_MEMORY_H
#define LOWER_MEMORY_H

/* What a rank holds, in bytes, and whether that is allowed. The slots of a program are all the memory that a step uses
   besides the weights, so this is exact, as far as the given sizes are. */

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

typedef struct Memory {
    bool has_sizes;
    uint64_t slot[SLOT_CLASSES]; /* bytes of one slot; of weights: of every version but one a stage */
    /* bytes that a stage takes apart from slots: weights, gradients, the optimizer's state */
    uint64_t weights;
    uint64_t limit;             /* bytes a rank; 0: none */
    uint32_t limit_activations; /* a rank; 0: none */
    const char *limit_text;     /* as the user gave it */
} Memory;

/* --slot-bytes: message=N,context=N,stash=N,gradient=N,weights=N,version=N; N may end in K, M, G or T (powers of 1024);
   what is left out is 0. --memory-limit: N, the same way, or activations=N. STATUS_BAD_USAGE says what is wrong. */
Status memory_set_sizes(Memory *memory, const char *text, Error *error);
Status memory_set_limit(Memory *memory, const char *text, Error *error);
/* STATUS_BAD_USAGE for a limit in bytes without sizes. */
Status memory_check_options(const Memory *memory, Error *error);

static inline bool memory_is_limited(const Memory *memory) { return memory->limit || memory->limit_activations; }

/* The same of one model that is cut into `to` stages instead of the `from` that the sizes are of: a stage and what it
   keeps of a microbatch are smaller in proportion, so a rank may hold more activations; messages are as large as
   before. Costs' counterpart: costs_resolve. */
Memory memory_recut(const Memory *memory, uint32_t from, uint32_t to);

uint64_t memory_bytes(const Memory *memory, const RankProgram *rank);

/* Whether every rank stays below the limit. If not, a diagnostic names the rank that needs most, how much that is, and
   the pass or message with which the peak is reached. */
bool memory_check(const Memory *memory, const Schedule *schedule, const Program *program, Diagnostics *diagnostics);

#endif
