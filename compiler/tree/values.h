#ifndef TREE_VALUES_H
#define TREE_VALUES_H

/* The names of a schedule file and their values: the file's own, or what the command line says. */

#include "compiler/tree/evaluate.h"
#include "runtime/base/status.h"

typedef struct Parameter {
    const char *name;
    int64_t value;
} Parameter;

/* What the command line sets. All zero: nothing. */
typedef struct Parameters {
    bool has_ranks, has_microbatches;
    int64_t ranks, microbatches;
    Parameter *others; /* -D: the arena's; of one name the last counts */
    uint32_t count, capacity;
} Parameters;

/* `name` must live as long as the parameters. */
void parameters_set(Parameters *parameters, Arena *arena, const char *name, int64_t value);
void parameters_set_ranks(Parameters *parameters, int64_t ranks);
void parameters_set_microbatches(Parameters *parameters, int64_t microbatches);

/* Whether one of the others has this name. */
bool parameters_has(const Parameters *parameters, const char *name);

/* The `param` of this name; NULL: there is none. */
const Item *parameter_item(const Ast *ast, const char *name);

/* Whether every parameter is a `param` of the checked file: STATUS_BAD_USAGE names the first that is not, and those
   that there are. `option` is where they come from: "-D" or "--sweep". */
Status parameters_check(const Ast *ast, const Parameters *parameters, const char *option, Error *error);

/* Values by slot, all zero. */
int64_t *values_new(const Ast *ast, Arena *arena);
/* Whether a top-level item has to be evaluated for every rank anew. */
bool item_per_rank(const Item *item);
/* The value of what a top-level item declares goes into its slot; items that declare no value are passed over. Items
   are evaluated in the order of the file. False: `fault` says why. */
bool item_evaluate(const Item *item, const Parameters *parameters, int64_t *values, Fault *fault);
/* All items that are the same for every rank; then, with the rank in RANK_SLOT, those that are not. */
bool values_for_all(const Ast *ast, const Parameters *parameters, int64_t *values, Fault *fault);
bool values_for_rank(const Ast *ast, uint32_t rank, int64_t *values, Fault *fault);

#endif
