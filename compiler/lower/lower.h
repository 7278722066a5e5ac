#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

/* Turns a proven schedule into instruction streams with slots and WAITs. After the passes come the sums of gradients
   over the copies of each stage, in the order of stages on every rank; then the norm and the updates. NULL: a rank
   needs more slots than a program can name, which is reported. */
Program *lower(const Schedule *schedule, const Source *source, Arena *arena, Diagnostics *diagnostics);

#endif
