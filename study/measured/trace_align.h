#pragma once

/* The clocks of the ranks of a trace may differ: ranks on several machines, or a file for each rank whose times have an
   origin of their own. */

#include "study/measured/trace_read.h"

/* If a pass starts before the pass on another rank that computes its input has ended, moves the times of whole ranks so
   that no pass does. Messages in both directions bound the distance of two clocks on both sides; the middle is taken.
   A note says how far ranks were moved or, if no distance is right, which pass starts too early. Nothing changes if all
   passes start late enough, or too early by at most a microsecond, to which times in traces may be rounded. */
void trace_align(Trace *trace, Arena *arena);
