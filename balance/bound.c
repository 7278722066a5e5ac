/* A lower bound of the largest load of a GPU. The share of an expert is the load of one of its replicas. Suppose that
   no GPU has a load above L. Then

     - every share is at most L, so an expert has at least ceil(load / L) replicas; these must fit into the slots;
     - an expert has at most this least number of replicas plus all slots that are free when every expert has its
       least number, so its share has a lower bound;
     - some GPU holds j + 1 of the j * gpus + 1 largest replicas (pigeonhole), and other replicas in its other slots:
       the smallest load that this GPU can have is at most L.

   The least L that satisfies all of these is a bound. */

#include "balance/domain.h"

#include <math.h>
#include <stdlib.h>

enum { HALVINGS = 24 };

typedef struct Least {
    double share;
    uint32_t times;
} Least;

static int by_share(const void *left, const void *right)
{
    const double one = ((const Least *)left)->share, other = ((const Least *)right)->share;
    return (one < other) - (one > other);
}

/* Lower bounds of the load of each replica if no GPU has a load above `largest`. least: [experts], sorted by this
   bound, the largest first, each with its least number of replicas; the last expert also gets all slots that are left.
   sums[i]: the sum over the first i replicas. False: there are too few slots or, if domain->distinct, too few GPUs for
   the replicas of an expert. */
static bool least_shares(const Domain *domain, double largest, Least *least, double *sums)
{
    double needed = 0;
    for (uint32_t e = 0; e < domain->experts; e++)
        needed += fmax(1, ceil(domain->loads[e] / largest * (1 - equal_loads)));
    if (needed > domain->slots)
        return false;
    const double spare = domain->slots - needed;
    for (uint32_t e = 0; e < domain->experts; e++) {
        const double times = fmax(1, ceil(domain->loads[e] / largest * (1 - equal_loads)));
        const double most = domain->distinct ? fmin(times + spare, domain->gpus) : times + spare;
        if (times > most)
            return false;
        least[e] = (Least){domain->loads[e] / most, (uint32_t)times};
    }
    qsort(least, domain->experts, sizeof *least, by_share);
    least[domain->experts - 1].times += (uint32_t)spare;
    uint32_t slot = 0;
    sums[0] = 0;
    for (uint32_t e = 0; e < domain->experts; e++)
        for (uint32_t r = 0; r < least[e].times; r++, slot++)
            sums[slot + 1] = sums[slot] + least[e].share;
    return true;
}

static bool may_be_possible(const Domain *domain, double largest, Least *least, double *sums)
{
    if (!least_shares(domain, largest, least, sums))
        return false;
    const uint32_t slots = domain->slots, each = slots / domain->gpus; /* each GPU has this many slots or one more */
    for (uint32_t j = 0; j < each && (uint64_t)j * domain->gpus < slots; j++) {
        const uint32_t at = j * domain->gpus; /* index of the smallest of the j * gpus + 1 largest replicas */
        const double together = sums[at + 1] - sums[at - j], others = sums[slots] - sums[slots - (each - j - 1)];
        if (largest < (together + others) * (1 - equal_loads))
            return false;
    }
    return true;
}

double domain_bound(const Domain *domain, double known, Arena *arena)
{
    Least *least = arena_array(arena, domain->experts, sizeof *least);
    double *sums = arena_array(arena, (size_t)domain->slots + 1, sizeof *sums);
    double low = domain_mean(domain), high = known;
    if (low >= high || low <= 0)
        return high < low ? high : low;
    if (may_be_possible(domain, low * (1 + equal_loads), least, sums))
        return low;
    /* bisection: every placement has a largest load above `low`; `high` may be possible */
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        *(may_be_possible(domain, middle, least, sums) ? &high : &low) = middle;
    }
    return low;
}
