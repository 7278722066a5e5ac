#pragma once

/* The times of passes and messages in traces. Each trace gives the passes that it has: 1F1B gives F and B, ZB-H1 gives
   F, I and W, DualPipe gives F&Bs too. All samples of a pass have the same weight, whichever trace they are from. A
   trace whose messages have another size than those of the first trace is of another model. Its passes do not count,
   but its messages allow latency and bandwidth to be told apart. */

#include "study/measured/trace_read.h"

enum { CALIBRATION_KINDS = ACTION_U + 1 };

typedef struct Samples {
    double *values;
    size_t count;
} Samples;

typedef struct CalibrationInput {
    Trace trace;
    /* the trace is of the model that the costs are for, so its passes count: its messages are as large as those in the
       first trace, or one of the two sizes is unknown */
    bool is_of_model;
    /* [stages][kind]: samples of this trace, of passes that ran alone; NULL: its passes do not count */
    Samples (*passes)[CALIBRATION_KINDS];
    /* the time of the passes that occur both in this trace and in the first one, relative to their time in the first
       one: a quotient of sums of typical times; NAN: no pass occurs in both */
    double relative;
    Samples messages;
} CalibrationInput;

/* The samples of all traces. Times are in ms; NAN: not measured. */
typedef struct Calibration {
    CalibrationInput *inputs; /* [count] */
    int count;
    Arena *arena;
    uint32_t stages;
    Samples (*passes)
        [CALIBRATION_KINDS]; /* [stages][kind]: samples of all traces of the first trace's model (is_of_model) */
    /* [stages][kind]: the share of an F&B's time that was assumed for this half, if the samples are from F&Bs and the
       trace does not have the times of halves; otherwise 0 */
    double (*parts)[CALIBRATION_KINDS];
    bool (*paired)[CALIBRATION_KINDS]; /* [stages][kind]: the pass never ran alone, so its samples are from F&Bs */
    /* [stages]: how much time a pass of the stage adds to an F&B, relative to its time alone (fit_shares); NAN: no
       F&B has a pass of the stage */
    double *shares;
    size_t *pairs; /* [stages]: number of F&Bs with a pass of the stage */
} Calibration;

/* Reads `count` traces, and of each the `fastest` shortest steps; 0: all steps. Step 1 is left out if there are others.
   The arena owns all memory. STATUS_BAD_INPUT: a file is not a trace, traces whose passes count have different numbers
   of stages, or a stage has no F. */
Status calibration_read(int count, char *const *paths, uint32_t fastest, Arena *arena, Calibration *calibration,
                        Error *error);

/* Like calibration_read, with a single trace that the caller has read. */
Status calibration_of(const Trace *trace, uint32_t fastest, Arena *arena, Calibration *calibration, Error *error);

void samples_add(Samples *samples, double value, Arena *arena);
/* The mean of the samples without the smallest 10 % and the largest 10 %; NAN: there are no samples. Sorts the samples.
   Predictions add up times, so the median of skewed samples would be too short; the plain mean would count single
   delays of a process. */
double samples_typical(const Samples *samples);

/* The typical time of a pass of a stage. For a B that was not measured, the sum of I and W. NAN: not measured. */
double calibration_pass(const Calibration *calibration, uint32_t stage, uint8_t kind);
