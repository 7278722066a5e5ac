#pragma once

/* Finds polynomials in P and M through given points, in exact fractions: a system of linear equations, one for each
   point. */

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Fraction {
    int64_t above, below; /* numerator and denominator, without a common factor; below > 0 */
} Fraction;

enum { FIT_TERMS = 6 }; /* 1, P, M, P*M, P*P, M/P */

/* The greatest common divisor, at least 0; that of 0 and b is |b|. */
int64_t common_divisor(int64_t a, int64_t b);

typedef struct Polynomial {
    Fraction terms[FIT_TERMS];
} Polynomial;

/* Linear equations in echelon form, for the coefficients of the terms. A system that is all zero has no equations. */
typedef struct FitSystem {
    Fraction rows[FIT_TERMS][FIT_TERMS + 1];
    bool used[FIT_TERMS]; /* used[i]: row i holds an equation; its first coefficient other than 0 is that of term i */
    uint32_t points;
    bool overflow; /* a fraction did not fit in 64 bits, so the system has no result */
} FitSystem;

/* Adds the equation "the polynomial has the value `value` / ranks at P = ranks and M = microbatches". False: no
   polynomial fulfils all equations so far, or a fraction overflowed. */
bool fit_point(FitSystem *system, int64_t ranks, int64_t microbatches, int64_t value);
/* Solves the equations, if fit_point has returned true for all of them; a coefficient that they leave open becomes 0.
   False: there are at most 2 * FIT_TERMS points, too few to trust the result, or a fraction overflowed. */
bool fit_solve(FitSystem *system, Polynomial *polynomial);

double polynomial_at(const Polynomial *polynomial, int64_t ranks, int64_t microbatches);
bool polynomial_is_zero(const Polynomial *polynomial);
/* The factor c for which a = c*b; 0 if there is none, b is zero or a fraction overflows. */
Fraction polynomial_ratio(const Polynomial *a, const Polynomial *b);
/* -1 if the term that polynomial_product_text writes first is negative, else 1. */
int polynomial_sign(const Polynomial *polynomial);
bool polynomial_is_one(const Polynomial *polynomial);
Polynomial polynomial_scaled(const Polynomial *polynomial, Fraction by);
/* The polynomial times `name` as text: "2(P-1)F", "(M+P-1)F", "PF/2". With the name "" it is the polynomial alone:
   "M+P-1". */
const char *polynomial_product_text(const Polynomial *polynomial, const char *name, Arena *arena);
