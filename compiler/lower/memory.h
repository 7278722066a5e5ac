#pragma once

/* The bytes that a rank needs, and the limit on them. A step uses only the memory of the weights and of the slots
   of its program, so the result is as exact as the given sizes. */

#include "compiler/schedule/schedule.h"
#include "base/front_end.h"
#include "program/program.h"

#include <stdio.h>

enum { MEMORY_WEIGHTS = 1 << SLOT_CLASSES };

typedef struct Memory {
    FrontEnd front_end; /* who sets it */
    uint32_t given;     /* the sizes that are given: bits 1 << class, and MEMORY_WEIGHTS; 0: none */
    /* bytes of one slot of each class; for SLOT_WEIGHTS: of each version of a stage's weights but the first */
    uint64_t slot[SLOT_CLASSES];
    /* bytes that a stage needs outside of slots: the first version of its weights, gradients, the optimizer's state */
    uint64_t weights;
    uint64_t limit;             /* most bytes per rank; 0: no limit */
    uint32_t limit_activations; /* most activations per rank; 0: no limit */
    const char *limit_text;     /* the text of --memory-limit: "24G"; of activations=N only "N" */
} Memory;

/* memory_set_sizes reads --slot-bytes, memory_set_limit --memory-limit. --slot-bytes:
   message=N,saved_for_dgrad=N,saved_for_wgrad=N,deferred_wgrad=N,weights=N,weight_version=N, or the older names
   context, stash, gradient and version. N may end in K, M, G or T (powers of 1024).
   --memory-limit: N in the same form, or activations=N. STATUS_BAD_USAGE says what is wrong. */
Status memory_set_sizes(Memory *memory, const char *text, Error *error);
Status memory_set_limit(Memory *memory, const char *text, Error *error);
/* STATUS_BAD_USAGE: there is a limit in bytes, but no sizes. */
Status memory_check_options(const Memory *memory, Error *error);

static inline bool memory_is_limited(const Memory *memory) { return memory->limit || memory->limit_activations; }

/* Converts the sizes and limits of a model cut into `from` stages to those of the same model cut into `to` stages. The
   bytes of a stage's weights and of all slots except messages are multiplied by from/to and rounded up. A limit in
   activations is multiplied by to/from and rounded down, but is at least 1. Messages and a limit in bytes keep their
   size. costs_resolve does the same for costs. */
Memory memory_recut(const Memory *memory, uint32_t from, uint32_t to);

/* The sizes that are not given and that some rank of the program needs, as bits of Memory.given. */
uint32_t memory_missing(const Memory *memory, const Program *program);
/* What to say of missing sizes: with front_name(front_end, SET_SLOT_BYTES) and memory_names(missing).text. */
#define MEMORY_LACKS "%s lacks %s (0 for what takes no memory)"
/* The names of such sizes: "message, weights". */
typedef struct MemoryNames {
    char text[96];
} MemoryNames;
MemoryNames memory_names(uint32_t sizes);
/* Writes a key of a JSON object, after a comma: "missing_sizes": ["message", "weights"]. Nothing if none is missing. */
void memory_put_missing(uint32_t sizes, FILE *stream);

/* The bytes that a rank needs. Sizes that are not given count as 0: if some are missing, it needs at least these. */
uint64_t memory_bytes(const Memory *memory, const RankProgram *rank);

/* Checks that no rank exceeds a limit. For each limit that is exceeded, a diagnostic names the rank that needs most,
   how much it needs, and the pass or message from which on it needs that much. A limit in bytes that the given sizes
   keep, but that needs further sizes, is refused, too. */
bool memory_check(const Memory *memory, const Schedule *schedule, const Program *program, Diagnostics *diagnostics);
