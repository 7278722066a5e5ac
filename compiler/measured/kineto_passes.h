#ifndef MEASURED_KINETO_PASSES_H
#define MEASURED_KINETO_PASSES_H

/* The passes of a pipeline in traces of the PyTorch profiler, one of each rank, as a trace of ours: for dpc diff and
   dpc calibrate. A pass is an annotation that the map knows. It took from the start of the first kernel launched in it
   to the end of the last; where a trace has no such kernels (a run on CPUs), what the annotation took. The k-th time
   that a pass runs on a rank is in step k. */

#include "compiler/measured/kineto_map.h"
#include "compiler/measured/trace_read.h"

/* Files are in the order of the ranks, unless all say theirs (distributedInfo). STATUS_BAD_INPUT: a file is wrong or
   has no pass. */
Status kineto_passes(const KinetoMap *map, int count, char *const *paths, Arena *arena, Trace *trace, Error *error);

#endif
