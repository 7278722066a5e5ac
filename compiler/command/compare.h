#ifndef COMMAND_COMPARE_H
#define COMMAND_COMPARE_H

/* dpc compare: several schedules in one table, at the same number of ranks or of stages, and the same number of microbatches.
   What the command line does not say, the first of them says that can be compiled.

   Times are those of a stage of that first one. A schedule that cuts the same model into more stages has stages that take less, in
   proportion (costs_recut): so the makespans are of one model, whoever runs it. */

#include "compiler/command/options.h"

#include <stdio.h>

/* Prints the table. A schedule that cannot take the sizes has a line that says why; one that is wrong has its diagnostics on stderr
   and makes the whole STATUS_BAD_INPUT. */
Status compare(const Options *options, Arena *arena, FILE *stream, Error *error);

#endif
