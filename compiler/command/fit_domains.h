#ifndef COMMAND_FIT_DOMAINS_H
#define COMMAND_FIT_DOMAINS_H

/* The domains in which dpc fit looks for formulas: costs and sizes. Both tables go from the widest domain to the
   narrowest. */

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FIT_COSTS = 5, FIT_VARIABLES = FIT_COSTS }; /* costs are [FIT_COSTS]: F, I, W, FB, comm, in this order */

/* A domain of costs, such as "comm = 0, I = F, W <= F". Formulas in it use a few variables; each of F, I, W, FB and
   comm is a sum of multiples of these variables. */
typedef struct CostDomain {
    const char *text;
    struct {
        const char *name;     /* the name of the first cost whose entry in `costs` is not 0 */
        int costs[FIT_COSTS]; /* how many times the variable counts in F, I, W, FB, comm */
    } variables[FIT_VARIABLES];
    bool by_turns; /* FB is F+B */
    bool (*admits)(const int64_t *costs);
} CostDomain;

extern const CostDomain cost_domains[];
extern const size_t cost_domain_count;
/* Searched orders are fitted from this domain on: in wider ones a search seldom meets its bound. */
extern const size_t cost_domain_of_searches;

/* A domain of sizes: those with M >= times*P - less. The sizes with equal P % modulus are a class; each class may have
   a formula of its own. */
typedef struct SizeDomain {
    const char *text; /* without the class */
    int64_t times, less;
    int64_t modulus; /* 1: all sizes are one class */
    int64_t least;   /* smallest P */
    bool units;      /* P divides M */
} SizeDomain;

extern const SizeDomain size_domains[];
extern const size_t size_domain_count;

bool size_domain_has(const SizeDomain *domain, int64_t rest, int64_t ranks, int64_t microbatches);
/* The domain and the class `rest` (P % modulus) as text: "P even, M >= 2P"; "" if that is all sizes. */
const char *size_domain_text(const SizeDomain *domain, int64_t rest, Arena *arena);

#endif
