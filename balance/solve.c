#include "balance/domain.h"

#include <math.h>

/* The search stops when the largest load is at most this: slightly above the lower bound. */
static double near(const Domain *domain, double bound)
{
    return bound * (1 + (domain->slots > 64 ? 1e-5 : equal_loads));
}

/* Improves the filling, to the optimum if the domain is small and the steps suffice. Returns a lower bound of the
   largest load: the optimum if it was found by enumeration, else `bound`. */
static double solve(const Domain *domain, Filling *filling, double bound, Arena *arena)
{
    filling_improve(domain, filling, near(domain, bound), arena);
    if (filling_largest(domain, filling) > near(domain, bound) && filling_exact(domain, filling, arena))
        return filling_largest(domain, filling);
    return bound;
}

double domain_solve(const Domain *domain, Filling *filling, Filling *distinct, Arena *arena)
{
    Domain apart = *domain, any = *domain;
    apart.distinct = (uint64_t)domain->experts * domain->gpus >= domain->slots;
    any.distinct = false;
    filling_start(&apart, distinct, arena);
    const double bound = domain_bound(domain, filling_largest(domain, distinct), arena);
    const double of_distinct = solve(&apart, distinct, bound, arena);
    filling_copy(domain, filling, distinct);
    if (domain->distinct || !apart.distinct)
        return of_distinct;
    return filling_largest(domain, filling) <= near(domain, bound) ? bound : solve(&any, filling, bound, arena);
}
