#pragma once

/* The last step of kineto_read: brings what was read into order. */

#include "study/measured/kineto_read.h"

/* Adds the base time, in ns, to all times. Sorts kernels and launches. A stream runs one kernel after the other, so a
   kernel that lasts into the next one of its stream is cut there. Counts what was cut, and kernels and launches that
   miss each other. */
void kineto_tidy(KinetoTrace *trace, int64_t base);
