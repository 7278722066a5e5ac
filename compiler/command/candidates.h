#ifndef COMMAND_CANDIDATES_H
#define COMMAND_CANDIDATES_H

/* The values of a schedule's parameters that are worth trying. */

#include "compiler/tree/values.h"

enum { CANDIDATES_MAX = 128 };

typedef struct Candidates {
    Parameters *all; /* [count]; the arena owns them */
    size_t count;    /* 1..CANDIDATES_MAX */
} Candidates;

/* Combinations of values for the `param`s of a checked file. The first one has the file's own values; the file's
   requires admit all others. Each combination contains the sizes and parameters in `given`, and the values that
   differ from the file's own. It contains a value equal to the file's own only if the file gives that as a number,
   not as an expression. The values tried for a parameter are the file's own, halves and multiples of that and, if the
   file gives a number, small numbers up to 8; the more parameters, the fewer values of each. Parameters of `order
   auto` are not varied: see memory_parameter. */
Candidates candidates_of(const Ast *tree, const Parameters *given, Arena *arena);

/* The parameter NAME in `order auto(memory = NAME)`; NULL if `memory` is anything but a parameter's name. */
const Item *memory_parameter(const Ast *tree);

#endif
