#ifndef MEASURED_CALIBRATION_H
#define MEASURED_CALIBRATION_H

/* What passes and messages took in traces of one model. Each gives the passes that it has: 1F1B gives F and B, ZB-H1
   gives F, I and W, DualPipe F&Bs too; of what several have, all samples count alike. A trace whose messages have
   another size than the first's is of another model: its passes do not count, its messages tell latency and bandwidth
   apart. */

#include "compiler/measured/trace_read.h"

enum { CALIBRATION_KINDS = ACTION_U + 1 };

typedef struct Samples {
    double *values;
    size_t count, capacity;
} Samples;

typedef struct CalibrationInput {
    Trace trace;
    bool gives_passes;                    /* of the model that the costs are for */
    Samples (*passes)[CALIBRATION_KINDS]; /* [stages]; its own */
    double relative;                      /* time of its passes over that in the first trace; NAN: none are in both */
    Samples messages;
} CalibrationInput;

/* What all traces say. Times in ms; NAN: they do not say. */
typedef struct Calibration {
    CalibrationInput *inputs; /* [count] */
    int count;
    Arena *arena;
    uint32_t stages;
    Samples (*passes)[CALIBRATION_KINDS]; /* [stages]: of all inputs */
    /* [stages]: of samples from F&Bs, what part of an F&B they are by rule; 0: the trace says what the halves took */
    double (*parts)[CALIBRATION_KINDS];
    bool (*paired)[CALIBRATION_KINDS]; /* [stages]: the samples are from F&Bs, as the pass never ran alone */
    double *shares;                    /* [stages]: what an F&B takes of its halves in turn; NAN: it is in none */
    size_t *pairs;                     /* [stages]: in how many F&Bs it is */
} Calibration;

/* From `count` traces, of the `fastest` steps of each; 0: of all. All memory is the arena's. STATUS_BAD_INPUT: a file
   is no trace, the traces are of different numbers of stages, or a stage has no F. */
Status calibration_read(int count, char *const *paths, uint32_t fastest, Arena *arena, Calibration *calibration,
                        Error *error);

/* The same of one trace that has been read. */
Status calibration_of(const Trace *trace, uint32_t fastest, Arena *arena, Calibration *calibration, Error *error);

void samples_add(Samples *samples, double value, Arena *arena);
/* The mean without the tenth at either end; NAN of none. Sorts the samples. A prediction adds up times, for which the
   median of a skewed sample is too short, and a process that was put off for once should not count. */
double samples_typical(const Samples *samples);

/* Typical time of a pass on a stage; of B where it never ran: of I and W. */
double calibration_pass(const Calibration *calibration, uint32_t stage, uint8_t kind);

#endif
