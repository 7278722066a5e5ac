#ifndef COMMAND_PROOF_H
#define COMMAND_PROOF_H

/* dpc --prove: asks a SAT solver whether an order is shorter than the one of a compilation. */

#include "compiler/compile.h"
#include "compiler/search/optimum.h"

typedef struct Proof {
    Proven proven;
    bool with_inputs;      /* the schedule has F&I, so the solver may use them too */
    bool too_large;        /* for the solver */
    const Schedule *found; /* a schedule with a shorter makespan; NULL: none was found */
} Proof;

/* `makespan` is that of the compilation, `bound` the bound without a solver. The arena of the compilation owns the
   result. STATUS_BAD_USAGE: there is no solver, the schedule has updates, or it only has forward passes. */
Status proof_find(const Compilation *c, double makespan, double bound, const OptimumControl *control, Proof *proof,
                  Error *error);

/* The result in words: "optimal: no order ... is shorter". */
const char *proof_text(const Proof *proof, const Compilation *c);

#endif
