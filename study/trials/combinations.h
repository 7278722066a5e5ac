#pragma once

/* The combinations of --sweep NAME=A..B,... */

#include "compiler/tree/values.h"

enum { SWEEP_RANGES_MAX = 16 };

typedef struct SweepRange {
    const char *name; /* "ranks", "microbatches" or a param of the file */
    int64_t first, last, step;
    bool times_ranks; /* the range ends at `last` * ranks instead of `last` */
} SweepRange;

/* All combinations of the ranges' numbers. The last range changes fastest. */
typedef struct Sweep {
    const char *text; /* as the user wrote it; NULL: there is no --sweep */
    SweepRange ranges[SWEEP_RANGES_MAX];
    uint32_t range_count;
    bool by_ranks; /* some range has times_ranks; ranges[0] is then the range of `ranks` */
    /* all combinations have the same ranks and microbatches, so the one with the least time is reported */
    bool compares;
    uint64_t combinations;
} Sweep;

/* Parses NAME=RANGE,... where RANGE is a number, a..b or a..b..step, and b may be a multiple of the ranks:
   ranks=2..64,microbatches=1..4*ranks. `text` must live as long as the sweep; the arena owns the names.
   STATUS_BAD_USAGE says what is wrong. */
Status sweep_parse(const char *text, Arena *arena, Sweep *sweep, Error *error);

/* The parameters of a combination: `given`, overridden by the numbers of the ranges. The arena owns what is new. */
Parameters sweep_parameters(const Sweep *sweep, const Parameters *given, uint64_t index, Arena *arena);

/* The numbers of a combination as options for a single compilation: "--ranks 4 -D chunks=2". */
const char *sweep_options(const Sweep *sweep, uint64_t index, Arena *arena);
