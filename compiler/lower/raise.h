#pragma once

#include "compiler/schedule/schedule.h"
#include "program/program.h"

/* The inverse of lower: makes a schedule of a verified program. Its orders contain the messages. `source` becomes a
   text of empty lines; the span of each action is on the line that its instruction names. */
void raise_schedule(const Program *program, Arena *arena, Source *source, Schedule *schedule);
