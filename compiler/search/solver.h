#pragma once

/* A SAT solver: CaDiCaL (Biere et al., CaDiCaL 2.0, CAV 2024), if it was installed when dpc was built. It decides
   whether there are values of boolean variables with which every clause has a true literal. */

#include <stdbool.h>

typedef enum Answer { ANSWER_YES, ANSWER_NO, ANSWER_UNKNOWN /* the solver was told to stop, or dpc has none */ } Answer;

typedef struct Solver Solver;

/* Whether dpc was built with a solver. */
bool solver_exists(void);
/* Makes a solver, which the caller frees. solver_ask calls `stop(context)` from time to time, and gives up when it
   returns true. NULL: dpc was built without a solver, or memory ran out. */
Solver *solver_new(bool (*stop)(void *context), void *context);
void solver_free(Solver *solver);

/* Appends a literal to the current clause; 0 ends the clause. Variables are 1, 2, 3, ...; literal -v is the negation of
   variable v. */
void solver_add(Solver *solver, int literal);
/* Asks whether all clauses and the literal `assumed` can be true together. assumed == 0: asks for the clauses alone.
   `assumed` holds for this call only. */
Answer solver_ask(Solver *solver, int assumed);
/* The value of a variable. The last solver_ask must have returned ANSWER_YES. */
bool solver_value(Solver *solver, int variable);
