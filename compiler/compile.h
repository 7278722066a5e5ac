#pragma once

/* Takes a schedule from source to verified program, for one set of parameters. All state is in the Compilation, so
   several compilations may run at once, each with an arena of its own. */

#include "compiler/lower/gap.h"
#include "compiler/schedule/timeline.h"
#include "compiler/search/search.h"
#include "compiler/search/search_recipe.h"
#include "compiler/tree/ast.h"
#include "compiler/tree/values.h"
#include "program/times/costs_resolve.h"

/* The forms of a schedule, in the order in which the compiler makes them. */
typedef enum Form {
    FORM_TOKENS,
    FORM_TREE,
    FORM_SCHEDULE, /* the placement; the orders follow later, except those of a .csv */
    FORM_ORDER,
    FORM_COMMS,
    FORM_PLAN,
} Form;

typedef struct Compilation Compilation;
struct Compilation {
    /* the caller sets the following: */
    Arena *arena;
    const Source *source;         /* an order if its path ends in .csv, otherwise a schedule file (.dps) */
    const Parameters *parameters; /* if the file uses cost(), compile() points this to a copy with its values */
    const Memory *memory;         /* the sizes of slots and the memory limit; NULL: no limit */
    const Costs *costs;           /* the costs as given; NULL: costs_unit */
    const SearchControl *search;  /* controls the search of `order auto`; NULL: search to the end */
    /* called with each form as soon as it exists; a result other than STATUS_OK ends the compilation. NULL: not
       called */
    Status (*reached)(const Compilation *compilation, Form form);
    void *context; /* for the function `reached`, which finds it in the Compilation */
    /* compile() sets the following; the arena owns it: */
    Diagnostics *diagnostics;
    Ast *tree; /* the parsed file; NULL: the source is a .csv, or did not parse */
    Schedule schedule;
    /* `costs`, resolved for the stages of the schedule (costs_resolve); `order auto` searches under these */
    Costs resolved;
    SearchProgress found;     /* result of the search of `order auto` */
    MemoryLimits limits;      /* the memory limits that `order auto` gives; most == NULL: there is no `order auto` */
    RecipeFound recipe_found; /* result of `overlap F&B auto` */
    PassTable table;
    Timeline unit_times; /* times of the passes under costs_unit */
    Program *program;
};

/* The makespan if outputs are sent as soon as they are computed, as dprun does. It differs from the prediction only for
   an order that is written with its messages (passes_take_sends). */
double compilation_prompt_makespan(const Compilation *compilation);

/* The gap between `makespan` and a lower bound of the makespan of all orders that keep the memory limits of the file
   and of `memory`. Without limits, the bound is for all orders that hold no more activations on any rank than the
   compiled orders hold there. */
Gap compilation_gap(const Compilation *compilation, double makespan);

/* Runs the passes of `compile` up to the order with its messages, each of which has two ends (prove_messages). Whether
   the ranks run them without a swap or a deadlock is not proven yet. */
Status compile_order(Compilation *compilation, Error *error);
/* Runs all passes. STATUS_OK: the program exists and is verified. STATUS_BAD_INPUT: the diagnostics say why, or
   `error` if there is no position to point at. STATUS_BAD_USAGE: `parameters` sets a name that the source does not
   have, or sets anything for a .csv. Any other status is that of `reached`, or a bug of the compiler, which `error`
   then names. */
Status compile(Compilation *compilation, Error *error);
