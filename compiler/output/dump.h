#ifndef OUTPUT_DUMP_H
#define OUTPUT_DUMP_H

/* Prints the forms between source and program as text. parse.h prints tokens and tree. */

#include "compiler/compile.h"

#include <stdio.h>

void dump_schedule(const Schedule *schedule, FILE *stream); /* pipes, and the stages of every rank */
void dump_times(const Schedule *schedule, const Timeline *timeline, FILE *stream); /* one pass per line: rank, start,
                                                                                      end */
/* for each rank a line with its numbers of slots, then one line for each pass, message, U and WAIT, with its slots */
void dump_plan(const Schedule *schedule, const Program *program, FILE *stream);

/* The summary of a proven schedule that dpc prints by default. */
void describe(const Compilation *compilation, const Timeline *timeline, const Gap *gap, FILE *stream);
void describe_search(const SearchProgress *found, FILE *stream); /* the result of `order auto`, in one line */

/* Prints what is proven about the result of `overlap F&B auto`: "no order takes less" or, if the search did not
   complete, "no order takes less than 12.5", the lower bound. */
void put_recipe_proof(const RecipeFound *found, const char *unit, FILE *stream);

#endif
