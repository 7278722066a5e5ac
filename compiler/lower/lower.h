#pragma once

#include "compiler/schedule/schedule.h"
#include "program/program.h"

/* Turns a proven schedule into one instruction stream per rank, with slots, WAITs and the sums of gradients over the
   copies of each stage (sums.h). A synchronous step that trains ends with the waits for these sums, the norm and the
   updates. In an asynchronous step each U becomes a sum, a wait for it and an update. A forward-only step has neither
   sums nor updates. NULL, with a diagnostic: a rank needs more slots than a program can name. */
Program *lower(const Schedule *schedule, const Source *source, Arena *arena, Diagnostics *diagnostics);
