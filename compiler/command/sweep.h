#ifndef COMMAND_SWEEP_H
#define COMMAND_SWEEP_H

/* Proves one schedule for many combinations of parameters. */

#include "compiler/command/combinations.h"
#include "compiler/compile.h"

/* Combinations that failed for the same reason: the same message at the same position (diag_kind). */
typedef struct SweepFailure {
    DiagKind kind;
    uint64_t count, first; /* combinations */
    /* these combinations exceed a limit; a sweep with equal ranks and microbatches in all combinations skips them */
    bool refused;
    const char *options;      /* of the first */
    Diagnostics *diagnostics; /* of the first */
    Error error;              /* the error of the first combination, if `diagnostics` do not have the reason */
} SweepFailure;

enum { SWEEP_FAILURES_MAX = 20 };

typedef struct SweepResult {
    uint64_t proven, not_admitted, refused, failed; /* combinations */
    SweepFailure failures[SWEEP_FAILURES_MAX];      /* [failure_count], refused ones too, sorted by `first` */
    uint32_t failure_count;
    bool more_failures; /* of other kinds */
    double seconds;
    const char
        *best; /* the options of the combination with the least makespan (the first of several); NULL: not compared */
    /* of the best combination, if `best` is not NULL. Costs and bytes are then for 1/ranks of the model */
    double makespan;
    uint32_t costs_stages; /* the number of stages that the costs are for */
    uint32_t derived;      /* costs that some combination derives, as bits 1 << StageCost */
    bool recut;            /* some combination has another number of stages than the costs are for */
} SweepResult;

/* Compiles every combination that the file's requires admit, several at once on the machine's cores. The compilation's
   own parameters apply where no range sets them. Failures do not end the sweep. STATUS_BAD_INPUT in three cases. The
   file itself is wrong: the compilation's diagnostics say why. No combination is admitted: the diagnostics and `error`
   say why the first one is not. Some combination failed, or none was proven: the result says which and why. If
   `progress` is a terminal, it shows a progress bar; NULL: none. */
Status sweep(const Sweep *sweep, Compilation *compilation, FILE *progress, SweepResult *result, Error *error);

/* Prints the result: what was proven, skipped and best on one stream, what failed on the other. */
void sweep_print(const Sweep *sweep, const SweepResult *result, const Compilation *compilation, FILE *stream,
                 FILE *errors);

#endif
