#pragma once

/* Prints the forms between source and program as text. (parse.h prints tokens and tree.) */

#include "compiler/compile.h"

#include <stdio.h>

/* Prints the pipes, and the stages of every rank. */
void dump_schedule(const Schedule *schedule, FILE *stream);
/* Prints one line for each pass and U: its rank, start and end. */
void dump_times(const Schedule *schedule, const Timeline *timeline, FILE *stream);
/* Prints for each rank how many slots of each class it has, then one line for each pass, message, U and WAIT, with its
   slots. */
void dump_plan(const Schedule *schedule, const Program *program, FILE *stream);

/* Prints the summary of a proven schedule, as dpc does by default. */
void describe(const Compilation *compilation, const Timeline *timeline, const Gap *gap, FILE *stream);
/* Prints the result of `order auto` in one line. */
void describe_search(const SearchProgress *found, FILE *stream);

/* Prints what is proven about the result of `overlap F&B auto`: "no order takes less" or, if the search was not
   complete, "no order takes less than 12.5", a lower bound. */
void put_recipe_proof(const RecipeFound *found, const char *unit, FILE *stream);
