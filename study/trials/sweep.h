#pragma once

/* Proves one schedule for many combinations of parameters. */

#include "study/trials/combinations.h"
#include "compiler/compile.h"

/* The combinations that failed for one reason: with the same message at the same position (diag_kind). */
typedef struct SweepFailure {
    DiagKind kind;
    uint64_t count, first; /* count: number of combinations; first: the smallest index among them */
    /* the sweep compares makespans and skips these combinations, because the file or a memory limit refuses them */
    bool refused;
    const char *options;      /* the options of combination `first`, as text */
    Diagnostics *diagnostics; /* the diagnostics of combination `first` */
    Error error;              /* the error of combination `first`; empty if `diagnostics` say why it failed */
} SweepFailure;

enum { SWEEP_FAILURES_MAX = 20 };

typedef struct SweepResult {
    uint64_t proven, not_admitted, refused, failed; /* numbers of combinations */
    /* [failure_count]: one for each reason, sorted by `first`; includes the refused ones */
    SweepFailure failures[SWEEP_FAILURES_MAX];
    uint32_t failure_count;
    bool more_failures; /* there were failures for further reasons, which have no room in `failures` */
    double seconds;
    /* options of the first combination with the least makespan; NULL: makespans are not compared, or none is proven */
    const char *best;
    double makespan;       /* of the best combination, if `best` is not NULL */
    uint32_t costs_stages; /* the number of stages that the costs are for */
    uint32_t derived;      /* the derived costs that some combination uses, as bits 1 << StageCost */
    bool recut;            /* some proven combination has another number of stages than its costs are for */
} SweepResult;

/* Compiles every combination that the file's requires admit, several at once on the machine's cores. The compilation's
   own parameters apply where no range sets them. A combination that fails does not end the sweep. STATUS_BAD_USAGE: the
   file is an order (.csv), or a range is of a parameter that it does not have, or of a size or parameter that also has
   a value of its own. STATUS_BAD_INPUT in three cases. The file itself is wrong: the compilation's diagnostics say why.
   No combination is admitted: the diagnostics and `error` say why the first one is not. Some combination failed, or
   none was proven: the result says which and why. A progress bar is shown on `progress` if that is a terminal; NULL:
   none. */
Status sweep(const Sweep *sweep, Compilation *compilation, FILE *progress, SweepResult *result, Error *error);

/* Prints the result. On `stream`: for how many combinations the schedule was proven correct, how many were excluded or
   skipped, and which one has the least makespan, if makespans are compared. On `errors`: which combinations failed, and
   why. */
void sweep_print(const Sweep *sweep, const SweepResult *result, const Compilation *compilation, FILE *stream,
                 FILE *errors);
