#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

/* A proven schedule as instruction streams, with slots and WAITs. After the passes come the sums of gradients over the
   copies of each stage, in the order of stages on every rank, the norm, the updates. NULL: a rank needs more slots than
   a program can name, and the diagnostics say so. */
Program *lower(const Schedule *schedule, const Source *source, Arena *arena, Diagnostics *diagnostics);

#endif
