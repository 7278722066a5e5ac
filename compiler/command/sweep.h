#ifndef COMMAND_SWEEP_H
#define COMMAND_SWEEP_H

/* Proves one schedule for many parameters. */

#include "compiler/command/combinations.h"
#include "compiler/compile.h"

/* Combinations that failed for the same reason: the same words at the same place (diag_kind). */
typedef struct SweepFailure {
    DiagKind kind;
    uint64_t count, first;    /* combinations */
    bool refused;             /* skipped: a sweep over parameters alone passes over what exceeds a limit */
    const char *options;      /* of the first */
    Diagnostics *diagnostics; /* of the first */
    Error error;              /* of the first, where no diagnostic says why */
} SweepFailure;

enum { SWEEP_FAILURES_MAX = 20 };

typedef struct SweepResult {
    uint64_t proven, not_admitted, refused, failed; /* combinations */
    SweepFailure failures[SWEEP_FAILURES_MAX];      /* [failure_count], refused ones too, by their first combinations */
    uint32_t failure_count;
    bool more_failures; /* of other kinds */
    double seconds;
    const char
        *best; /* the options of the combination with the least makespan, of equal ones the first; NULL: not compared */
    double
        makespan; /* of the best. In a sweep over parameters alone costs and sizes are those of 1/ranks of the model */
    uint32_t costs_stages; /* of how many stages the costs are */
    uint32_t derived;      /* costs that some combination derives, as bits 1 << StageCost */
    bool recut;            /* some combination has another number of stages */
} SweepResult;

/* Compiles every combination that the file's requires admit, several at once on the machine's cores, with the
   compilation's own parameters where no range sets them, and goes on after those that fail. STATUS_BAD_INPUT: the file
   itself is wrong, and the compilation's diagnostics say why; no combination is admitted, and they and `error` say why
   the first is not; or some failed, or none was proven, and the result says which and why. On a terminal `progress`
   shows a bar; NULL: none. */
Status sweep(const Sweep *sweep, Compilation *compilation, FILE *progress, SweepResult *result, Error *error);

/* What the result says, in words: what was proven, skipped and is best on one stream, what failed on the other. */
void sweep_print(const Sweep *sweep, const SweepResult *result, const Compilation *compilation, FILE *stream,
                 FILE *errors);

#endif
