#ifndef COMMAND_SWEEP_H
#define COMMAND_SWEEP_H

/* Proves one schedule for many parameters. */

#include "compiler/compile.h"

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
    bool compares; /* all combinations are of the same ranks and microbatches: which takes the least time is worth saying */
    uint64_t combinations;
} Sweep;

/* `text` is NAME=RANGE,... with RANGE a number, a..b or a..b..step, in which b may be a number of times the ranks:
   ranks=2..64,microbatches=1..4*ranks. It must live as long as the sweep, the names are the
   arena's. STATUS_BAD_USAGE says what is wrong. */
Status sweep_parse(const char *text, Arena *arena, Sweep *sweep, Error *error);

typedef struct SweepResult {
    uint64_t proven, not_admitted; /* combinations */
    double seconds;
    const char *best; /* the options of the combination with the least makespan, of equal ones the first; NULL: not compared, as it is not
                         where they cut the model into different numbers of stages: the costs are those of a stage */
    double makespan;  /* its makespan under the compilation's costs */
} SweepResult;

/* Compiles every combination that the file's requires admit, several at once on the machine's cores, with the compilation's
   own parameters where no range sets them. A combination that fails ends the sweep: the first one, in their order, is
   compiled once more as `compilation` itself, so that its diagnostics say why, and `error` says which it is. When none is
   admitted, that is a failure of the first. On a terminal `progress` shows a bar; NULL: none. */
Status sweep(const Sweep *sweep, Compilation *compilation, FILE *progress, SweepResult *result, Error *error);

#endif
