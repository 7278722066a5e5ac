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
    bool gives_passes;                    /* it is of the model that the costs are for */
    Samples (*passes)[CALIBRATION_KINDS]; /* [stages]; of this trace */
    double relative;                      /* time of its passes over that in the first trace; NAN: they have no pass
                                             in common */
    Samples messages;
} CalibrationInput;

/* The samples of all traces. Times are in ms; NAN: not measured. */
typedef struct Calibration {
    CalibrationInput *inputs; /* [count] */
    int count;
    Arena *arena;
    uint32_t stages;
    Samples (*passes)[CALIBRATION_KINDS]; /* [stages]: of all inputs */
    /* [stages]: for samples from F&Bs, the share of the F&B by rule; 0: the trace has the times of the halves */
    double (*parts)[CALIBRATION_KINDS];
    bool (*paired)[CALIBRATION_KINDS]; /* [stages]: the samples are from F&Bs, because the pass never ran alone */
    double *shares;                    /* [stages]: the time of an F&B as a share of its halves one after the other;
                                          NAN: the stage is in no F&B */
    size_t *pairs;                     /* [stages]: the number of F&Bs that it is in */
} Calibration;

/* Reads `count` traces and takes the `fastest` shortest steps of each; 0: all steps. The arena owns all memory.
   STATUS_BAD_INPUT: a file
   is not a trace, the traces have different numbers of stages, or a stage has no F. */
Status calibration_read(int count, char *const *paths, uint32_t fastest, Arena *arena, Calibration *calibration,
                        Error *error);

/* Makes the calibration from one trace that has been read; otherwise like calibration_read. */
Status calibration_of(const Trace *trace, uint32_t fastest, Arena *arena, Calibration *calibration, Error *error);

void samples_add(Samples *samples, double value, Arena *arena);
/* The mean without the tenth at either end; NAN without samples. Sorts the samples. A prediction adds up times, for
   which the median of a skewed sample is too short; and one delay of a process should not count. */
double samples_typical(const Samples *samples);

/* The typical time of a pass on a stage; of a B that never ran: the sum of I and W. */
double calibration_pass(const Calibration *calibration, uint32_t stage, uint8_t kind);

#endif
