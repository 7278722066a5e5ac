#pragma once

/* The sizes at which dpc fit evaluates a schedule, each compiled in an arena of its own. */

#include "study/trials/fit_domains.h"
#include "study/trials/settings.h"
#include "compiler/compile.h"

typedef struct FitSize {
    int64_t ranks, microbatches;
    /* the formulas of makespan and bubble are not fitted to this size, only checked at it; the formula of the peak is
       fitted to it, too */
    bool other;
    unsigned has_formula; /* the FitPairs for which a formula of the current quantity at this size has been printed */
    /* if orders depend on costs: the costs under which `c` was compiled; costs[0] == 0: the costs of the options,
       or costs that gave no usable order */
    int64_t costs[FIT_COSTS];
    bool lowered; /* `c` was compiled as far as the program */
    Arena arena;
    Compilation c;
} FitSize;

typedef struct FitSizes {
    const TrialSettings *options; /* the parameters (-D) of the options apply to all sizes */
    const Source *source;
    FitSize *all;
    uint32_t count;
    bool has_pairs; /* some orders have F&Bs */
} FitSizes;

/* Compiles a fixed selection of sizes under the costs of the options, and keeps those that the file admits. The caller
   frees them with fit_sizes_free. */
void fit_sizes_compile(FitSizes *sizes, Arena *arena);
void fit_sizes_free(FitSizes *sizes);

/* Compiles a size again under other costs: as far as the program if `lowered`, else only as far as the messages,
   which suffice for times. False: the size does not compile. */
bool fit_size_compile(const FitSizes *sizes, FitSize *size, const Costs *costs, bool lowered);

/* Whether the order is as short as the search's lower bound. True for an order that was not searched. */
bool fit_size_at_bound(const FitSize *size);

/* Prints the name of the schedule and the ranges of the sizes. */
void fit_sizes_print(const FitSizes *sizes, const char *name, FILE *stream);
