#pragma once

/* Compares two runs to the bit: every loss, every norm, and the loss on held-out data. All NaNs are equal. The loss on
   held-out data is not compared if it is NaN or missing in one of the runs. The first run is recorded. The second is
   compared step by step, and ended at the first difference. */

#include "runtime/trainer/trainer.h"

#include <stdio.h>

typedef struct Check {
    uint32_t microbatches;
    uint64_t steps;    /* how many steps the first run has made; the second run makes as many */
    uint64_t equal;    /* how many steps of the second run were equal to the first run */
    double *numbers;   /* [steps][microbatches + 2]: the losses, the norm, the loss on held-out data */
    Observer told;     /* another observer: it gets the reports of the first run, too */
    atomic_bool *stop; /* the flag that ends a run after its current step; set at the first difference */
    bool differs;      /* the runs differ; then the three fields below say where: */
    uint64_t step;     /* the first step that differs */
    uint32_t place;    /* the index of the first different number in the numbers of its step */
    double values[2];  /* that number in the first run, and in the second run */
} Check;

/* Prepares a check of runs of at most `steps` steps. The arena owns the memory for their numbers. */
void check_open(Check *check, const LoadedProgram *loaded, uint64_t steps, atomic_bool *stop, Arena *arena);
/* The observer for the first run: records its numbers, and passes all reports on to `told`. */
Observer check_record(Check *check, Observer told);
/* The observer for the second run: compares it with the first. Both runs must have the same number of steps. */
Observer check_compare(Check *check);
/* Writes the result: with `json` one JSON object, otherwise one line if the runs are equal and nothing if they differ.
   STATUS_BAD_INPUT, with both numbers: the runs differ. */
Status check_tell(const Check *check, bool json, FILE *stream, Error *error);
