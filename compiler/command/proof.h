#pragma once

/* dpc --prove: asks a SAT solver whether there is a shorter order than that of a compilation. */

#include "compiler/compile.h"
#include "compiler/search/optimum.h"

typedef struct Proof {
    Proven proven;
    bool with_inputs;      /* the schedule has F&Is, so the solver may use F&Is, too */
    bool too_large;        /* the problem is too large for the solver */
    const Schedule *found; /* the schedule with a shorter makespan that the solver found; NULL: it found none that
                              dpc can prove within the memory limits */
} Proof;

/* makespan: that of the compilation's order; bound: a lower bound found without a solver. The arena of the compilation
   owns the result. STATUS_BAD_USAGE: there is no solver, or the schedule has updates within the step, only forward
   passes, or recipes that defer weight gradients. */
Status proof_find(const Compilation *c, double makespan, double bound, const OptimumControl *control, Proof *proof,
                  Error *error);

/* The result in words: "optimal: no order ... is shorter". */
const char *proof_text(const Proof *proof, const Compilation *c);
