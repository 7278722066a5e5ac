#ifndef COMMAND_CHECK_H
#define COMMAND_CHECK_H

/* Holds the numbers of one run against those of another, to the bit: every loss, every norm, and the loss on held-out
   data. The first run is recorded, the second compared with it step by step, and ended where it differs. */

#include "runtime/trainer/trainer.h"

#include <stdio.h>

typedef struct Check {
    uint32_t microbatches;
    uint64_t steps;    /* that the first run had, */
    uint64_t equal;    /* and of these the second has made equal */
    double *numbers;   /* [steps][microbatches + 2]: the losses, the norm, the loss on held-out data */
    Observer told;     /* what the first run tells goes there, too */
    atomic_bool *stop; /* ends a run after its step */
    bool differs;      /* from here on: */
    uint64_t step;
    uint32_t place;   /* of a step's numbers */
    double values[2]; /* of the first run and of the second */
} Check;

/* Room for the numbers of `steps` steps is the arena's. */
void check_open(Check *check, const Program *program, uint64_t steps, atomic_bool *stop, Arena *arena);
/* For the first run: records and tells `told`. */
Observer check_record(Check *check, Observer told);
/* For the second run, of as many steps as the first had. */
Observer check_compare(Check *check);
/* Writes what came out: one line, or one JSON object. STATUS_BAD_INPUT, with both numbers, where the runs differ. */
Status check_tell(const Check *check, bool json, FILE *stream, Error *error);

#endif
