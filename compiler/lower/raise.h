#ifndef LOWER_RAISE_H
#define LOWER_RAISE_H

#include "compiler/schedule/schedule.h"
#include "runtime/program/program.h"

/* The way back from lower: the schedule of a verified program. Its orders have their messages, and every action a place
   in `source`, a text of empty lines, on the line that its instruction names. */
void raise_schedule(const Program *program, Arena *arena, Source *source, Schedule *schedule);

#endif
