#pragma once

/* dpc advise tries all schedules that come with dpc, and further files, at one number of ranks and microbatches, with
   the parameter values that are worth trying. It sorts the schedules by the time of a step. The given costs (times and
   bytes) are for 1/ranks of the model, or for one of N stages if they give or suggest a number N (trial_costs_stages).
   --slot-bytes are for 1/ranks of the model. */

#include "study/trials/advise_trials.h"

#include <stdio.h>

/* The result of the trials. */
typedef struct Advice {
    const TrialSettings *options;
    const char *diagnostics; /* printed diagnostics of the files that are wrong; "": no file is wrong */
    const CompareRow *rows;  /* [row_count]: each advised schedule with its best parameters, the fastest first */
    size_t row_count;
    /* rows[row_count..all_count-1]: schedules that are left out, and schedules with parameter values that were not
       tried in time; each has a reason */
    size_t all_count;
} Advice;

/* Tries the schedules. STATUS_OK: the advice is filled in. Attempts that the time limit or ctrl-C cut short do not
   count. STATUS_BAD_INPUT: the advice is filled in, but some file does not compile (the advice has its diagnostics) or
   cannot be read (its row has the reason), or no schedule is advised. Any other status: there is no advice. */
Status advise(const TrialSettings *options, const TrialsControl *control, Arena *arena, Advice *advice, Error *error);

/* Prints the advised schedules as a table, the reasons of rows[row_count..all_count-1], and the command that compiles
   the first row of the table, if it has rows. */
void advice_put_text(const Advice *advice, Arena *arena, FILE *stream);
/* {"rows": [...], "left_out": [{"schedule", "reason"}], "derived_costs": (as costs_put_derived_json, if there are
   any)}. A row has schedule, file, parameters (an object), makespan, bound, gap, bubble_rate, memory (bytes of the
   rank that needs most; null: sizes are unknown), the keys of compare_put_sums if there are replicas, imbalance,
   order_bubble and messages_time (BubbleCauses), activations (most on a rank, in microbatches of the whole model),
   copies (of the weights), messages (of all ranks), command. */
void advice_put_json(const Advice *advice, Arena *arena, FILE *stream);
