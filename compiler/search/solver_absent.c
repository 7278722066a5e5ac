/* Replaces solver_cadical.c in a build without CaDiCaL. */

#include "compiler/search/solver.h"

#include <stddef.h>

bool solver_exists(void) { return false; }

Solver *solver_new(bool (*stop)(void *context), void *context)
{
    (void)stop, (void)context;
    return NULL;
}

void solver_free(Solver *solver) { (void)solver; }
void solver_add(Solver *solver, int literal) { (void)solver, (void)literal; }

Answer solver_ask(Solver *solver, int assumed)
{
    (void)solver, (void)assumed;
    return ANSWER_UNKNOWN;
}

bool solver_value(Solver *solver, int variable)
{
    (void)solver, (void)variable;
    return false;
}
