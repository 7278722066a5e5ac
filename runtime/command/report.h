#pragma once

/* What dprun prints while it runs: header, progress and results as text, or as JSON for programs. */

#include "runtime/command/options.h"

#include <stdio.h>

typedef struct Report {
    const CommandLine *line;
    const RunOptions *options; /* line->run */
    atomic_bool *stop;         /* the flag that ends the run; set if standard output cannot be written any more */
    /* the stream for text: standard error if standard output has JSON or a file, otherwise standard output */
    FILE *words;
    bool speaks;   /* this process runs rank 0, which alone prints */
    bool terminal; /* standard error is a terminal: each progress line overwrites the one before */
    RunFacts facts;
    double tokens;                                /* per step */
    double seconds;                               /* how long all steps so far have taken together */
    StepReport last;                              /* of the last step so far; what it points to is no longer valid */
    double first_load;                            /* StepReport.expert_load of the first step */
    double all_to_all_seconds, all_to_all_waited; /* of all steps; see StepReport */
    /* sums of StepReport.rank_load over steps: [0] up to the first placement of experts by load, [1] after it */
    double rank_loads[2];
    /* unplaced: number of steps before the first placement, which comes after a step; placements: number of placements;
       moved: number of experts that moved, summed over all placements */
    uint64_t unplaced, placements, moved;
    int output_error; /* errno of the first failure of standard output; 0: none */
} Report;

/* Fills in `report` and `observer`: the observer prints what a run reports. */
void report_open(Report *report, const CommandLine *line, atomic_bool *stop, Observer *observer);
/* Prints the results and the names of the files that were written, and returns STATUS_OK. If the run has failed
   (`status`), prints no results and returns `status`; a process without rank 0 only returns `status`.
   STATUS_RUN_FAILED also if standard output could not be written, unless its reader has closed the pipe. */
Status report_close(Report *report, Status status, Error *error);
