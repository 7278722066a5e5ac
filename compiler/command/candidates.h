#ifndef COMMAND_CANDIDATES_H
#define COMMAND_CANDIDATES_H

/* The values of a schedule's parameters that are worth trying. */

#include "compiler/tree/values.h"

enum { CANDIDATES_MAX = 128 };

typedef struct Candidates {
    Parameters *all; /* [count], the arena's */
    size_t count;    /* 1..CANDIDATES_MAX */
} Candidates;

/* Combinations of values for the `param`s of a checked file that its requires admit. The first one has the file's
   own values, admitted or not. Each has the sizes and parameters that are `given`. It also names the file's own
   value if that is a number, to show it, and leaves it out if it follows from other values. A value is tried with
   its halves and multiples, a number also with 1 to 8; with several parameters each has fewer values. The memory of
   `order auto` is not varied: see memory_parameter. */
Candidates candidates_of(const Ast *tree, const Parameters *given, Arena *arena);

/* The parameter that is all of `memory` in `order auto(memory = NAME)`; NULL: none. */
const Item *memory_parameter(const Ast *tree);

#endif
