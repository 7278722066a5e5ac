#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

/* Turns a proven schedule into instruction streams with slots and WAITs, and with the sums of gradients over the copies
   of each stage (sums.h). After the passes come the waits for these, the norm and the updates. NULL: a rank needs more
   slots than a program can name, which is reported. */
Program *lower(const Schedule *schedule, const Source *source, Arena *arena, Diagnostics *diagnostics);

#endif
