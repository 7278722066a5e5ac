#ifndef COMMAND_ADVISE_H
#define COMMAND_ADVISE_H

/* dpc advise tries all schedules that come with dpc, and further files, at one number of ranks and microbatches,
   with the parameter values that are worth trying. It sorts them by the time of a step. Times and bytes are given
   for 1/ranks of the model. */

#include "compiler/command/options.h"
#include "compiler/command/trial.h"

#include <stdio.h>

/* The result of the trials. */
typedef struct Advice {
    const Options *options;
    const CompareRow *rows; /* [row_count]: each schedule with its best parameters; the best schedule first */
    size_t row_count;
    size_t all_count; /* after these rows come the schedules that are left out, and parameters that were not tried in
                      time */
} Advice;

/* Prints the table, or the JSON object. A wrong file has its diagnostics on stderr and makes the result
   STATUS_BAD_INPUT; so does a table without rows. ctrl-C ends the trials, and what was found so far is printed. */
Status advise(const Options *options, Arena *arena, FILE *stream, Error *error);

/* Prints a table, the reasons why other schedules are not in it, and the command that compiles the first row. */
void advice_put_text(const Advice *advice, Arena *arena, FILE *stream);
/* {"rows": [...], "left_out": [{"schedule", "reason"}], "derived_costs": (as costs_put_derived_json, if there are
   any)}. A row has schedule, file, parameters (an object), makespan, bound, gap, bubble_rate, memory (bytes of the rank
   that needs most; null: sizes are unknown), imbalance, order_bubble and messages_time (BubbleCauses), activations
   (most on a rank, in microbatches of the whole model), copies (of the weights), messages (of all ranks), command. */
void advice_put_json(const Advice *advice, Arena *arena, FILE *stream);

#endif
