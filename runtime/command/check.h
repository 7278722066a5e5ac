#ifndef COMMAND_CHECK_H
#define COMMAND_CHECK_H

/* Compares two runs to the bit: every loss, every norm, and the loss on held-out data. The first run is recorded. The
   second is compared step by step, and ended at the first difference. */

#include "runtime/trainer/trainer.h"

#include <stdio.h>

typedef struct Check {
    uint32_t microbatches;
    uint64_t steps;    /* steps of the first run */
    uint64_t equal;    /* steps that are equal in the second run */
    double *numbers;   /* [steps][microbatches + 2]: the losses, the norm, the loss on held-out data */
    Observer told;     /* also receives what the first run reports */
    atomic_bool *stop; /* ends a run after its current step */
    bool differs;      /* the runs differ, at: */
    uint64_t step;
    uint32_t place;   /* index in the numbers of the step */
    double values[2]; /* of the first run, of the second run */
} Check;

/* Memory for the numbers of `steps` steps comes from the arena. */
void check_open(Check *check, const LoadedProgram *loaded, uint64_t steps, atomic_bool *stop, Arena *arena);
/* Observes the first run: records its numbers and passes everything on to `told`. */
Observer check_record(Check *check, Observer told);
/* Observes the second run, which has as many steps as the first. */
Observer check_compare(Check *check);
/* Writes the result: one line, or one JSON object. STATUS_BAD_INPUT, with both numbers: the runs differ. */
Status check_tell(const Check *check, bool json, FILE *stream, Error *error);

#endif
