#ifndef SEARCH_OPTIMUM_CLAUSES_H
#define SEARCH_OPTIMUM_CLAUSES_H

/* Clauses about times and numbers. */

#include "compiler/search/solver.h"
#include "runtime/base/arena.h"

#include <stdint.h>

/* Literals that are always true and never true. */
enum { ALWAYS = INT32_MAX, NEVER_SO = -INT32_MAX };

typedef struct Clauses {
    Solver *solver;
    int variables; /* number of them */
} Clauses;

/* Returns the first of `count` new variables. */
int clauses_variables(Clauses *clauses, int count);
/* At least one of these literals is true. */
void clause_add(const Clauses *clauses, int a, int b, int c, int d);
void clause_implies(const Clauses *clauses, int a, int b);

/* A time: a variable per tick from `first` to `last` - 1, true if the time is at that tick or earlier. */
typedef struct Ladder {
    int first, last;
    int variables; /* the one of `first` */
} Ladder;

Ladder ladder_new(Clauses *clauses, int first, int last);
/* The literal "the time is at most that". */
int ladder_by(const Ladder *ladder, int time);
/* `to` is at least `lag` after `from`, unless one of the exceptions is true. */
void ladder_follows(const Clauses *clauses, const Ladder *from, const Ladder *to, int lag, int exception, int other);

/* How many of some literals are true: literals[i] is true if, besides the `always` that are constants, more than i are
   true. */
typedef struct Count {
    int *literals;
    uint32_t count, always;
} Count;

/* A totalizer (Bailleux and Boufkhad, Efficient CNF encoding of boolean cardinality constraints, 2003). */
Count count_true(Clauses *clauses, const int *literals, uint32_t count, Arena *arena);
/* The literal "more than `most` are true". */
int count_above(const Count *count, int64_t most);

#endif
