#ifndef SEARCH_SOLVER_H
#define SEARCH_SOLVER_H

/* A SAT solver: CaDiCaL (Biere et al., CaDiCaL 2.0, CAV 2024), if it was installed when dpc was built. It decides
   whether there are values of boolean variables with which every clause has a true literal. */

#include <stdbool.h>

typedef enum Answer { ANSWER_YES, ANSWER_NO, ANSWER_UNKNOWN /* it was told to stop */ } Answer;

typedef struct Solver Solver;

/* Whether dpc was built with a solver. Without one solver_new returns NULL. */
bool solver_exists(void);
/* Makes a solver, which the caller frees. It calls `stop` from time to time, and gives up when `stop` returns true. */
Solver *solver_new(bool (*stop)(void *context), void *context);
void solver_free(Solver *solver);

/* Appends a literal to the current clause; 0 ends the clause. Variables are 1, 2, 3, ...; literal -v is the negation of
   variable v. */
void solver_add(Solver *solver, int literal);
/* Asks whether all clauses and the literal `assumed` can be true together. assumed == 0: asks for the clauses alone. */
Answer solver_ask(Solver *solver, int assumed);
/* After ANSWER_YES: the value of a variable. */
bool solver_value(Solver *solver, int variable);

#endif
