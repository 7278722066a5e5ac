#pragma once

/* The values of a schedule's parameters that are worth trying. */

#include "compiler/tree/values.h"

enum { CANDIDATES_MAX = 128 };

typedef struct Candidates {
    Parameters *all; /* [count]; the arena owns them */
    size_t count;    /* 1..CANDIDATES_MAX */
} Candidates;

/* Combinations of values for the `param`s of a checked file. The first one has the file's own values. The others meet
   the requires of the file; requires that may differ by rank or use cost() are not checked. Each combination contains
   the sizes and parameters in `given`, and the values that differ from the file's own. It contains a value equal to the
   file's own only if the file gives this value as a number, not as an expression. The values tried for a parameter are
   the file's own value, its double, half and 3/2 and, if the file gives a number, its fourfold and 0, 1, 2, 3, 4, 6 and
   8; the more parameters, the fewer values of each. Not varied are parameters in `given`, parameters that depend on
   costs, parameters of `order auto` (see memory_parameter), values beyond 2^30, and of the other parameters all but the
   first four. */
Candidates candidates_of(const Ast *tree, const Parameters *given, Arena *arena);

/* The parameter NAME in `order auto(memory = NAME)`; NULL: the file has no `order auto`, or its `memory` is not just a
   parameter's name. */
const Item *memory_parameter(const Ast *tree);
