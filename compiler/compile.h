#ifndef COMPILER_COMPILE_H
#define COMPILER_COMPILE_H

/* A schedule's way from source to verified program, for one set of parameters. No state is kept outside the
   Compilation: several may run at once, each with an arena of its own. */

#include "compiler/lower/memory.h"
#include "compiler/schedule/timeline.h"
#include "compiler/search/search.h"
#include "compiler/search/search_recipe.h"
#include "compiler/tree/ast.h"
#include "compiler/tree/values.h"
#include "runtime/program/costs_resolve.h"

/* A form on the way, in the order of the passes. */
typedef enum Form {
    FORM_TOKENS,
    FORM_TREE,
    FORM_SCHEDULE, /* where every stage lives; the orders are not there yet, except a .csv's */
    FORM_ORDER,
    FORM_COMMS,
    FORM_PLAN,
} Form;

typedef struct Compilation Compilation;
struct Compilation {
    /* what the caller gives */
    Arena *arena;
    const Source *source; /* .csv by its path: an order; otherwise a .dps */
    const Parameters *parameters;
    const Memory *memory;                                         /* whose limits it has to keep; NULL: none */
    const Costs *costs;                                           /* as they were given; NULL: costs_unit */
    const SearchControl *search;                                  /* of `order auto`; NULL: to its end */
    Status (*reached)(const Compilation *compilation, Form form); /* called with each form as it is there; what is not
                                                                     STATUS_OK ends the compilation. NULL: none */
    const void *context;                                          /* for `reached` */
    /* what there is when it ends; the arena's */
    Diagnostics *diagnostics;
    Ast *tree; /* NULL: of a .csv, or it did not parse */
    Schedule schedule;
    /* what `costs` say of the schedule's stages (costs_resolve); `order auto` searches under them */
    Costs resolved;
    SearchProgress found;     /* of `order auto` */
    RecipeFound recipe_found; /* of `overlap F&B auto` */
    PassTable table;
    Timeline unit_times; /* in costs_unit */
    Program *program;
};

/* STATUS_OK: everything is there and verified. STATUS_BAD_INPUT: the diagnostics say why, or `error`
   where there is no place to point at; STATUS_BAD_USAGE: `parameters` name what the source does not have. */
Status compile(Compilation *compilation, Error *error);

#endif
