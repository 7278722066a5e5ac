#pragma once

/* The names of a schedule file and their values, given in the file, on the command line, or by the program that uses
   libdps. */

#include "compiler/tree/evaluate.h"
#include "base/front_end.h"
#include "base/status.h"

typedef struct Parameter {
    const char *name;
    int64_t value;
} Parameter;

/* Values for the names of a schedule file that replace those in the file; all zero if none is given. */
typedef struct Parameters {
    FrontEnd front_end; /* who sets them */
    bool has_ranks, has_microbatches;
    int64_t ranks, microbatches;
    /* values of `param`, from -D or --sweep; the arena owns them; if a name is there twice, the last value counts */
    Parameter *others;
    uint32_t count, capacity;
    int64_t costs[COST_VALUES]; /* the values of cost(), computed by order/cost_values.h; all 0 if not known yet */
} Parameters;

/* Sets the value of a `param`. `name` must live as long as the parameters. */
void parameters_set(Parameters *parameters, Arena *arena, const char *name, int64_t value);
void parameters_set_ranks(Parameters *parameters, int64_t ranks);
void parameters_set_microbatches(Parameters *parameters, int64_t microbatches);

/* Whether a value is set for the `param` of this name. */
bool parameters_has(const Parameters *parameters, const char *name);

/* The `param` of this name; NULL: there is none. */
const Item *parameter_item(const Ast *ast, const char *name);

/* Checks that every value is for a `param` of the checked file. STATUS_BAD_USAGE: `error` names the first value that is
   not. It lists the params of the file or, if the name is that of the number of ranks or microbatches, names the option
   that sets this number. `sweep`: "--sweep", or NULL if the values are not from a sweep. */
Status parameters_check(const Ast *ast, const Parameters *parameters, const char *sweep, Error *error);

/* A new array of values, [slot]: the costs that are known, and 0 for all other names. */
int64_t *values_new(const Ast *ast, const Parameters *parameters, Arena *arena);
/* Whether the value of the item depends on costs that are not known yet. Costs depend on the number of stages, so they
   are known only after the placement. Until then the item has the value 0, or, if it is a require, counts as met. */
bool item_waits(const Item *item, const int64_t *values);
/* Whether a top-level item may have another value on each rank. */
bool item_per_rank(const Item *item);
/* Sets the value of a top-level item that declares one (ranks, microbatches, param, let or pipe) in the item's slot. A
   value that `parameters` gives replaces the expression. Otherwise, if item_waits, no value is stored. Does nothing for
   any other item. Items must be evaluated in the order of the file. False: `fault` says why the expression has no
   value. */
bool item_evaluate(const Item *item, const Parameters *parameters, int64_t *values, Fault *fault);
/* values_for_all evaluates the top-level items that are the same for every rank. values_for_rank sets RANK_SLOT and
   evaluates the top-level `let` that depend on the rank. False: `fault` says why an expression has no value. */
bool values_for_all(const Ast *ast, const Parameters *parameters, int64_t *values, Fault *fault);
bool values_for_rank(const Ast *ast, uint32_t rank, int64_t *values, Fault *fault);
