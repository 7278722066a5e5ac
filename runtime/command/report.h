#ifndef COMMAND_REPORT_H
#define COMMAND_REPORT_H

/* What dprun prints while it runs: header, progress and results for people, or JSON for programs. */

#include "runtime/command/options.h"

#include <stdio.h>

typedef struct Report {
    const CommandLine *line;
    const RunOptions *options; /* line->run */
    atomic_bool *stop;         /* set when nobody reads standard output any more */
    FILE *words;               /* for people: standard error where standard output is for programs */
    bool speaks;               /* this process has rank 0 */
    bool terminal;             /* standard error is one: the progress is drawn in place */
    RunFacts facts;
    double tokens;  /* of a step */
    double seconds; /* of all steps so far */
    bool has_held_out;
    uint64_t held_out_tokens;
    double held_out_loss, last_loss, last_makespan;
    double first_load, last_load, last_balance_loss; /* of experts; 0: there are none */
    uint64_t steps;                                  /* that have run */
    int output_error;                                /* errno of standard output's first failure */
} Report;

/* Fills in `report` and the observer that feeds it. */
void report_open(Report *report, const CommandLine *line, atomic_bool *stop, Observer *observer);
/* The results and the names of what was written, or nothing when the run has failed. STATUS_RUN_FAILED when standard
   output could not be written, though not when its reader has left. */
Status report_close(Report *report, Status status, Error *error);

#endif
