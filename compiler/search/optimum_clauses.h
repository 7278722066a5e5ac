#pragma once

/* Clauses about times and counts, for the SAT solver. */

#include "compiler/search/solver.h"
#include "base/arena.h"

#include <stdint.h>

/* Literals that are always true and never true. */
enum { ALWAYS = INT32_MAX, NEVER_SO = -INT32_MAX };

typedef struct Clauses {
    Solver *solver;
    int variables; /* number of variables so far */
} Clauses;

/* Returns the first of `count` new variables. */
int clauses_variables(Clauses *clauses, int count);
/* Adds the clause that at least one of these four literals is true. Literals that are not needed are NEVER_SO. */
void clause_add(const Clauses *clauses, int a, int b, int c, int d);
/* Adds the clause that b is true if a is. */
void clause_implies(const Clauses *clauses, int a, int b);

/* A time in ticks, from `first` to `last`. It has a variable for each tick from `first` to `last` - 1, which is true if
   the time is at that tick or earlier. */
typedef struct Ladder {
    int first, last;
    int variables; /* the variable of tick `first` */
} Ladder;

Ladder ladder_new(Clauses *clauses, int first, int last);
/* The literal "the time of the ladder is at most `time`". */
int ladder_by(const Ladder *ladder, int time);
/* Adds the clauses that the time `to` is at least `lag` ticks after the time `from`, unless the literal `exception` or
   `other` is true. */
void ladder_follows(const Clauses *clauses, const Ladder *from, const Ladder *to, int lag, int exception, int other);

/* How many of some literals are true. `always` of the literals are the constant ALWAYS; of the others,
   literals[i] is true if more than i are true. */
typedef struct Count {
    int *literals;
    uint32_t count, always;
} Count;

/* Counts the true ones of these literals with a totalizer (Bailleux and Boufkhad, Efficient CNF encoding of boolean
   cardinality constraints, 2003). */
Count count_true(Clauses *clauses, const int *literals, uint32_t count, Arena *arena);
/* The literal "more than `most` of the counted literals are true". */
int count_above(const Count *count, int64_t most);
