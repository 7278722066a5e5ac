#ifndef COMPILER_COMPILE_H
#define COMPILER_COMPILE_H

/* The way of a schedule from source to verified program, for one set of parameters. All state is in the Compilation,
   so several compilations may run at once, each with an arena of its own. */

#include "compiler/lower/gap.h"
#include "compiler/schedule/timeline.h"
#include "compiler/search/search.h"
#include "compiler/search/search_recipe.h"
#include "compiler/tree/ast.h"
#include "compiler/tree/values.h"
#include "runtime/program/costs_resolve.h"

/* The forms of a schedule, in the order of the passes that make them. */
typedef enum Form {
    FORM_TOKENS,
    FORM_TREE,
    FORM_SCHEDULE, /* placement only; the orders follow later, except those of a .csv */
    FORM_ORDER,
    FORM_COMMS,
    FORM_PLAN,
} Form;

typedef struct Compilation Compilation;
struct Compilation {
    /* set by the caller */
    Arena *arena;
    const Source *source;         /* a path that ends in .csv: an order; otherwise a .dps */
    const Parameters *parameters; /* if the file uses cost(), compile replaces them by a copy with the costs */
    const Memory *memory;         /* the sizes of slots and the memory limit; NULL: no limit */
    const Costs *costs;           /* as given; NULL: costs_unit */
    const SearchControl *search;  /* of `order auto`; NULL: search to the end */
    Status (*reached)(const Compilation *compilation, Form form); /* called with each form as soon as it exists; a
                                                                     result other than STATUS_OK ends the
                                                                     compilation. NULL: not called */
    void *context;                                                /* for `reached` */
    /* the result; the arena owns it */
    Diagnostics *diagnostics;
    Ast *tree; /* NULL: the source is a .csv, or did not parse */
    Schedule schedule;
    /* `costs` as they apply to the stages of the schedule (costs_resolve); `order auto` searches under them */
    Costs resolved;
    SearchProgress found;     /* of `order auto` */
    MemoryLimits limits;      /* the memory limits of `order auto`; `most` == NULL: the file has none */
    RecipeFound recipe_found; /* of `overlap F&B auto` */
    PassTable table;
    Timeline unit_times; /* under costs_unit */
    Program *program;
};

/* The gap between `makespan` and a lower bound of the makespan of all orders that keep the memory limits of the file
   and of `memory`. Without limits, the orders may hold as much as the orders of the compilation hold. */
Gap compilation_gap(const Compilation *compilation, double makespan);

/* STATUS_OK: everything is there and verified. STATUS_BAD_INPUT: the diagnostics say why, or `error` if there is no
   position to point at. STATUS_BAD_USAGE: `parameters` sets a name that the source does not have, or sets anything for
   a .csv. Any other status is that of `reached`, or a bug of the compiler, which `error` then names. */
Status compile(Compilation *compilation, Error *error);

#endif
