#ifndef OUTPUT_DUMP_H
#define OUTPUT_DUMP_H

/* The forms between source and program, as text for people. Tokens and tree are shown by parse.h. */

#include "compiler/compile.h"

#include <stdio.h>

void dump_schedule(const Schedule *schedule, FILE *stream); /* pipes, and the stages of every rank */
void dump_times(const Schedule *schedule, const Timeline *timeline, FILE *stream); /* a pass a line: rank, start, end */
void dump_plan(const Schedule *schedule, const Program *program, FILE *stream);    /* a step a line: its slots */

/* What dpc says of a proven schedule when it is asked for nothing else. */
void describe(const Compilation *compilation, const Timeline *timeline, FILE *stream);
void describe_search(const SearchProgress *found, FILE *stream); /* how `order auto` was filled in, a line */

/* What is proven of the result of `overlap F&B auto`: "no order takes less", with a time if the search did not end. */
void put_recipe_proof(const RecipeFound *found, const char *unit, FILE *stream);

#endif
