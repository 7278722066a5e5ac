#ifndef MEASURED_CALIBRATION_H
#define MEASURED_CALIBRATION_H

/* The times of passes and messages in traces of one model. Each trace gives the passes that it has: 1F1B gives F and
   B, ZB-H1 gives F, I and W, DualPipe gives F&Bs too. Samples of the same pass from several traces count alike. A
   trace whose messages have another size than those of the first one is of another model: its passes do not count,
   and its messages tell latency and bandwidth apart. */

#include "compiler/measured/trace_read.h"

enum { CALIBRATION_KINDS = ACTION_U + 1 };

typedef struct Samples {
    double *values;
    size_t count;
} Samples;

typedef struct CalibrationInput {
    Trace trace;
    /* it is of the model that the costs are for: its messages have the size of those in the first trace, or a size is
       unknown */
    bool gives_passes;
    Samples (*passes)[CALIBRATION_KINDS]; /* [stages]; of this trace */
    /* typical times of the passes that it has in common with the first trace, over the times of these passes there;
       NAN: there are no such passes */
    double relative;
    Samples messages;
} CalibrationInput;

/* The samples of all traces. Times are in ms; NAN: not measured. */
typedef struct Calibration {
    CalibrationInput *inputs; /* [count] */
    int count;
    Arena *arena;
    uint32_t stages;
    Samples (*passes)[CALIBRATION_KINDS]; /* [stages]: of all inputs */
    /* [stages][kind]: for samples from F&Bs, the share of the time of an F&B that this half was assumed to take; 0: the
       trace has the times of the halves */
    double (*parts)[CALIBRATION_KINDS];
    bool (*paired)[CALIBRATION_KINDS]; /* [stages][kind]: the samples are from F&Bs, because the pass never ran alone */
    /* [stages]: the time that a pass of the stage adds to an F&B, divided by its time alone (fit_shares); NAN: the
       stage is in no F&B */
    double *shares;
    size_t *pairs; /* [stages]: number of F&Bs with a pass of the stage */
} Calibration;

/* Reads `count` traces and takes the `fastest` shortest steps of each; 0: all steps. The arena owns all memory.
   STATUS_BAD_INPUT: a file is not a trace, traces whose passes count have different numbers of stages, or a stage has
   no F. */
Status calibration_read(int count, char *const *paths, uint32_t fastest, Arena *arena, Calibration *calibration,
                        Error *error);

/* Like calibration_read, from one trace that was read before. */
Status calibration_of(const Trace *trace, uint32_t fastest, Arena *arena, Calibration *calibration, Error *error);

void samples_add(Samples *samples, double value, Arena *arena);
/* The mean of the samples without the smallest tenth and the largest tenth; NAN without samples. Sorts the samples. The
   median would be too short for a prediction, which adds up times, if the samples are skewed; the plain mean would
   count single delays of a process. */
double samples_typical(const Samples *samples);

/* The typical time of a pass on a stage; of a B that never ran: the sum of I and W. */
double calibration_pass(const Calibration *calibration, uint32_t stage, uint8_t kind);

#endif
