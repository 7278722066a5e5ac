#ifndef COMMAND_ADVISE_H
#define COMMAND_ADVISE_H

/* dpc advise: tries all schedules that come with dpc, and further files, with the values of their parameters that are
   worth trying, at one number of ranks and microbatches, and sorts them by the time of a step. Times and bytes are
   given for 1/ranks of the model. */

#include "compiler/command/options.h"
#include "compiler/command/trial.h"

#include <stdio.h>

/* What was found. */
typedef struct Advice {
    const Options *options;
    const CompareRow *rows; /* [row_count]: each schedule with its best parameters; the best schedule first */
    size_t row_count;
    size_t
        all_count; /* behind these rows the schedules, and parameters for which there was no time, that are left out */
} Advice;

/* Prints the table, or the JSON object. A file that is wrong has its diagnostics on stderr and makes the whole
   STATUS_BAD_INPUT, as does that no schedule is left. ctrl-C ends the trials: what has been found so far is printed. */
Status advise(const Options *options, Arena *arena, FILE *stream, Error *error);

/* A table, why the other schedules are not in it, and the command that compiles the first one. */
void advice_put_text(const Advice *advice, Arena *arena, FILE *stream);
/* {"rows": [...], "left_out": [{"schedule", "reason"}], "derived_costs": (as costs_put_derived_json, where there are
   any)}. A row has schedule, file, parameters (an object), makespan, bubble_rate, memory (bytes of the rank that needs
   most; null: sizes are not known), imbalance, order_bubble and messages_time (BubbleCauses), activations (most on a
   rank, in microbatches of the whole model), copies (of the weights), messages (of all ranks), command. */
void advice_put_json(const Advice *advice, Arena *arena, FILE *stream);

#endif
