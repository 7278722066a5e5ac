#include "compiler/search/solver.h"

#include <ccadical.h>
#include <stdlib.h>

struct Solver {
    CCaDiCaL *of;
    bool (*stop)(void *context);
    void *context;
};

static int terminate(void *state)
{
    const Solver *solver = state;
    return solver->stop(solver->context);
}

bool solver_exists(void) { return true; }

Solver *solver_new(bool (*stop)(void *context), void *context)
{
    Solver *solver = malloc(sizeof *solver);
    if (!solver)
        return NULL;
    *solver = (Solver){ccadical_init(), stop, context};
    ccadical_set_option(solver->of, "quiet", 1);        /* standard output is for the forms of --emit */
    ccadical_set_option(solver->of, "inprocessing", 0); /* all proofs measured were faster without inprocessing */
    ccadical_set_terminate(solver->of, solver, terminate);
    return solver;
}

void solver_free(Solver *solver)
{
    ccadical_release(solver->of);
    free(solver);
}

void solver_add(Solver *solver, int literal) { ccadical_add(solver->of, literal); }

Answer solver_ask(Solver *solver, int assumed)
{
    if (assumed)
        ccadical_assume(solver->of, assumed);
    const int answer = ccadical_solve(solver->of);
    return answer == 10 ? ANSWER_YES : answer == 20 ? ANSWER_NO : ANSWER_UNKNOWN;
}

bool solver_value(Solver *solver, int variable) { return ccadical_val(solver->of, variable) > 0; }
