#ifndef COMMAND_COMBINATIONS_H
#define COMMAND_COMBINATIONS_H

/* What --sweep NAME=A..B,... goes through. */

#include "compiler/tree/values.h"

enum { SWEEP_RANGES_MAX = 16 };

typedef struct SweepRange {
    const char *name; /* "ranks", "microbatches" or a param of the file */
    int64_t first, last, step;
    bool times_ranks; /* last: so many times the ranks */
} SweepRange;

/* All combinations of the ranges' numbers, in order: the last range runs fastest. */
typedef struct Sweep {
    const char *text; /* as the user wrote it; NULL: no sweep */
    SweepRange ranges[SWEEP_RANGES_MAX];
    uint32_t range_count;
    bool by_ranks; /* some range ends at a number of times the ranks, which are the first range */
    /* all combinations are of the same ranks and microbatches: which takes the least time is worth saying */
    bool compares;
    uint64_t combinations;
} Sweep;

/* `text` is NAME=RANGE,... with RANGE a number, a..b or a..b..step, in which b may be a number of times the ranks:
   ranks=2..64,microbatches=1..4*ranks. It must live as long as the sweep, the names are the
   arena's. STATUS_BAD_USAGE says what is wrong. */
Status sweep_parse(const char *text, Arena *arena, Sweep *sweep, Error *error);

/* The parameters of a combination: `given`, and the ranges' numbers over them. The arena owns what is new. */
Parameters sweep_parameters(const Sweep *sweep, const Parameters *given, uint64_t index, Arena *arena);

/* The same numbers as options of a single compilation: "--ranks 4 -D chunks=2". */
const char *sweep_options(const Sweep *sweep, uint64_t index, Arena *arena);

#endif
