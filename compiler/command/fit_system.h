#ifndef COMMAND_FIT_SYSTEM_H
#define COMMAND_FIT_SYSTEM_H

/* Polynomials in P and M through given points, in exact fractions: a system of linear equations, one for each point. */

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Fraction {
    int64_t above, below; /* below > 0, no common factor */
} Fraction;

enum { FIT_TERMS = 6 }; /* 1, P, M, P*M, P*P, M/P */

typedef struct Polynomial {
    Fraction terms[FIT_TERMS];
} Polynomial;

/* Equations in echelon form. All zero: none. */
typedef struct FitSystem {
    Fraction rows[FIT_TERMS][FIT_TERMS + 1];
    bool used[FIT_TERMS]; /* the rows, by their leading term */
    uint32_t points;
    bool overflow; /* a fraction did not fit in 64 bits: nothing follows */
} FitSystem;

/* Demands that the polynomial is value/P at these sizes. False: no polynomial is that and passes through the points
   before. */
bool fit_point(FitSystem *system, int64_t ranks, int64_t microbatches, int64_t value);
/* The polynomial, if there are enough points that it is not a matter of choice: more than it has terms. */
bool fit_solve(FitSystem *system, Polynomial *polynomial);

double polynomial_at(const Polynomial *polynomial, int64_t ranks, int64_t microbatches);
bool polynomial_is_zero(const Polynomial *polynomial);
/* The factor c with a = c*b; 0 above if there is none, or b is zero. */
Fraction polynomial_ratio(const Polynomial *a, const Polynomial *b);
/* "2(P-1)", "M+P-1"; in parentheses if `factor` and it has several terms. "" for 1 if `factor`. */
const char *polynomial_text(const Polynomial *polynomial, bool factor, Arena *arena);

#endif
