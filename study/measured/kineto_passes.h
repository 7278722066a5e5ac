#pragma once

/* Turns traces of the PyTorch profiler, one for each rank, into one trace of passes for dpc diff and dpc calibrate. A
   pass is an annotation that the map knows. It lasts from the start of the first kernel that was launched in it to the
   end of the last one, or to the start of the rank's next pass; if no pass of a rank has such kernels (a run on CPUs),
   as long as the annotation. If only some passes of a rank have kernels, the others are left out. The k-th run of a
   pass on its rank is in step k. The clocks of the ranks are aligned (trace_align.h). The trace's notes say what the
   reader noticed. */

#include "study/measured/kineto_map.h"
#include "study/measured/trace_read.h"

/* Reads `count` files, one for each rank. If all files name different ranks (distributedInfo), they are sorted by rank;
   otherwise file i is of rank i. STATUS_BAD_INPUT: there are too many files, a file is wrong or has no pass, or a
   pattern of the map has no {microbatch}. */
Status kineto_passes(const KinetoMap *map, int count, char *const *paths, Arena *arena, Trace *trace, Error *error);
