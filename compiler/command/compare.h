#ifndef COMMAND_COMPARE_H
#define COMMAND_COMPARE_H

/* dpc compare: several schedules in one table, at the same number of ranks or of stages, and the same number of
   microbatches.

   A time for all stages is that of 1/P of the model, P the ranks of the table, or 1/N with --stages N; so are sizes in
   bytes. A schedule that cuts the model into more stages has stages that take less, in proportion (costs_resolve): the
   makespans are of one model, whoever runs it. What the command line does not say of the sizes is the largest that one
   of the files has by itself. */

#include "compiler/command/options.h"

#include <stdio.h>

/* Prints the table, sorted. A schedule that cannot take the sizes has a line that says why; one that is wrong has its
   diagnostics on stderr and makes the whole STATUS_BAD_INPUT. */
Status compare(const Options *options, Arena *arena, FILE *stream, Error *error);

#endif
