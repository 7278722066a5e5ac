#ifndef COMMAND_CANDIDATES_H
#define COMMAND_CANDIDATES_H

/* The values of a schedule's parameters that are worth trying. */

#include "compiler/tree/values.h"

enum { CANDIDATES_MAX = 128 };

typedef struct Candidates {
    Parameters *all; /* [count], the arena's */
    size_t count;    /* 1..CANDIDATES_MAX */
} Candidates;

/* Combinations of values for the `param`s of a checked file. The first one has the file's own values; all others are
   combinations that the file's requires admit. Each contains the sizes and parameters in `given`, and the values that
   differ from the file's own. A value equal to the file's own is in it only if the file gives a number, not an
   expression. Tried values of a parameter are its own one, halves and multiples of that and, if the file gives a
   number, small numbers up to 8; the more parameters, the fewer values of each. Parameters of `order auto` are not
   varied: see memory_parameter. */
Candidates candidates_of(const Ast *tree, const Parameters *given, Arena *arena);

/* The parameter that is all of `memory` in `order auto(memory = NAME)`; NULL: none. */
const Item *memory_parameter(const Ast *tree);

#endif
