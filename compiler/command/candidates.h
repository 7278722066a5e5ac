#ifndef COMMAND_CANDIDATES_H
#define COMMAND_CANDIDATES_H

/* Which values of a schedule's parameters are worth trying. */

#include "compiler/tree/values.h"

enum { CANDIDATES_MAX = 128 };

typedef struct Candidates {
    Parameters *all; /* [count], the arena's */
    size_t count;    /* 1..CANDIDATES_MAX */
} Candidates;

/* Combinations of values for the `param`s of a checked file that its requires admit; the first one is the file's own
   values, whether they are admitted or not. Each has the sizes and parameters that are `given`. It also names the
   file's own value where that is a number, so that it can be shown, and leaves it out where it follows from other
   values. A value is tried with its halves and multiples, a number also beside 1 to 8; of several parameters each has
   fewer values. What `order auto` is told stays as it is: see memory_parameter. */
Candidates candidates_of(const Ast *tree, const Parameters *given, Arena *arena);

/* The parameter that is all of `memory` in `order auto(memory = NAME)`: NULL where there is none. */
const Item *memory_parameter(const Ast *tree);

#endif
