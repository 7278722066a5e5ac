#pragma once

/* Writes the formulas of dpc fit as text. */

#include "study/trials/fit_domains.h"
#include "study/trials/fit_system.h"

/* A linear form in the variables of a domain of costs: of[v] is the coefficient of variable v. */
typedef struct Piece {
    Polynomial of[FIT_VARIABLES];
} Piece;

/* The linear form as text, with common factors taken out and positive terms first: "2(P-1)(I-W)", "(M+P-1)(F+B) -
   PW". */
const char *piece_text(const Piece *piece, const CostDomain *costs, int variables, Arena *arena);
