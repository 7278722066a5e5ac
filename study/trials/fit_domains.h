#pragma once

/* The domains of costs and of sizes in which dpc fit looks for formulas. Both tables begin with the widest domain. */

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* an array of costs is [FIT_COSTS]: F, I, W, FB, comm, in this order */
enum { FIT_COSTS = 5, FIT_VARIABLES = FIT_COSTS };

/* Which times of an F&B a domain admits: that of both halves in turn; times between that and the longer half, without
   either; or all of these, from the longer half to both halves in turn. */
typedef enum FitPairs { PAIRS_IN_TURN = 1, PAIRS_BETWEEN = 2, PAIRS_ALL = PAIRS_IN_TURN | PAIRS_BETWEEN } FitPairs;

/* A domain of costs, such as "comm = 0, I = F, W <= F". Its formulas use a few variables; each of F, I, W, FB and
   comm is a sum of multiples of these variables. Times other than F may be 0. */
typedef struct CostDomain {
    const char *text;
    struct {
        /* the variable's name: that of the first cost whose entry in `costs` is not 0; NULL ends the list */
        const char *name;
        int costs[FIT_COSTS]; /* multiple of the variable in each of F, I, W, FB, comm */
    } variables[FIT_VARIABLES];
    FitPairs pairs;
    bool searched; /* also tried for searched orders. In the other domains a search seldom meets its bound */
    bool (*admits)(const int64_t *costs);
} CostDomain;

extern const CostDomain cost_domains[];
extern const size_t cost_domain_count;

/* A domain of sizes: all P and M with M >= times*P - less that also fulfil `least` and `units`. Sizes with the same
   P % modulus are a class; each class may have a formula of its own. */
typedef struct SizeDomain {
    const char *text; /* the conditions on P and M as text, without the condition on P % modulus */
    int64_t times, less;
    int64_t modulus; /* 1: all sizes are one class */
    int64_t least;   /* the smallest number of ranks, P */
    bool units;      /* M is a multiple of P */
} SizeDomain;

extern const SizeDomain size_domains[];
extern const size_t size_domain_count;

bool size_domain_has(const SizeDomain *domain, int64_t rest, int64_t ranks, int64_t microbatches);
/* The conditions of the domain and of its class `rest` (P % modulus) as text: "P even, M >= 2P"; "" if these are all
   sizes. */
const char *size_domain_text(const SizeDomain *domain, int64_t rest, Arena *arena);
