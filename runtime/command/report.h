#ifndef COMMAND_REPORT_H
#define COMMAND_REPORT_H

/* What dprun prints while it runs: header, progress and results as text, or as JSON for programs. */

#include "runtime/command/options.h"

#include <stdio.h>

typedef struct Report {
    const CommandLine *line;
    const RunOptions *options; /* line->run */
    atomic_bool *stop;         /* set to end the run, if standard output cannot be written any more */
    /* the stream for text: standard error if standard output has JSON or a file, otherwise standard output */
    FILE *words;
    bool speaks;   /* this process has rank 0 and prints */
    bool terminal; /* standard error is a terminal: the progress is drawn in place */
    RunFacts facts;
    double tokens;  /* per step */
    double seconds; /* how long all steps so far have taken together */
    bool has_held_out;
    uint64_t held_out_tokens;
    double held_out_loss, last_loss, last_makespan;
    /* first and last step: load of the busiest expert (StepReport.expert_load); last step: balance loss. 0: the model
       has no experts */
    double first_load, last_load, last_balance_loss;
    double all_to_all_seconds, all_to_all_waited; /* of all steps; see StepReport */
    /* sums of StepReport.rank_load: [0] over the steps before experts were first placed by load, [1] over those after
       that */
    double rank_loads[2];
    /* how many steps came before the first placement; how often experts were placed; how many experts moved in total */
    uint64_t unplaced, placements, moved;
    uint64_t steps;   /* number of steps that have run */
    int output_error; /* errno of the first failure of standard output */
} Report;

/* Fills in `report`, and the observer that reports the run to it. */
void report_open(Report *report, const CommandLine *line, atomic_bool *stop, Observer *observer);
/* Prints the results and the names of the files that were written; nothing if the run has failed. STATUS_RUN_FAILED:
   standard output could not be written, except because its reader has left. */
Status report_close(Report *report, Status status, Error *error);

#endif
