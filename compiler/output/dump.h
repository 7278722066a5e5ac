#ifndef OUTPUT_DUMP_H
#define OUTPUT_DUMP_H

/* Prints the forms between source and program as text. parse.h prints tokens and tree. */

#include "compiler/compile.h"

#include <stdio.h>

void dump_schedule(const Schedule *schedule, FILE *stream); /* pipes, and the stages of every rank */
void dump_times(const Schedule *schedule, const Timeline *timeline, FILE *stream); /* one pass per line: rank, start,
                                                                                      end */
void dump_plan(const Schedule *schedule, const Program *program, FILE *stream);    /* one step per line: its slots */

/* The summary of a proven schedule that dpc prints by default. */
void describe(const Compilation *compilation, const Timeline *timeline, const Gap *gap, FILE *stream);
void describe_search(const SearchProgress *found, FILE *stream); /* the result of `order auto`, in one line */

/* What is proven about the result of `overlap F&B auto`: "no order takes less", with a time if the search did not
   end. */
void put_recipe_proof(const RecipeFound *found, const char *unit, FILE *stream);

#endif
