#pragma once

/* `dpc calibrate --map` with a map of components: the times of a layer's components in traces of the PyTorch
   profiler, as a cost file and as a table. */

#include "study/measured/kineto_profile.h"

#include <stdio.h>

/* Reads `count` traces of the same model, from different ranks or times, and writes the costs to the file `output`
   ("-": stdout). The table goes to stdout or, if `output` is standard output, a device or a pipe, to stderr.
   STATUS_BAD_INPUT: a trace or the map is wrong, or a trace has no kernel that belongs to a component. */
Status kineto_calibrate(const KinetoMap *map, int count, char *const *paths, const char *output, Arena *arena,
                        Error *error);

/* Times of a component over all its runs, in microseconds. The means leave out the smallest 10 % and the largest 10 %
   of the times (samples_typical). */
typedef struct ComponentTime {
    uint8_t subject;
    uint32_t count;
    double mean, least, greatest;
    /* mean time from the start of a run's first kernel that moves data to the end of the last such kernel; NAN: none
       of the component's kernels moves data */
    double data;
} ComponentTime;

typedef struct ComponentTimes {
    /* [stream]: the components of the stream, in the order in which they first run */
    ComponentTime entries[RECIPE_STREAMS][RECIPE_ENTRIES];
    uint32_t counts[RECIPE_STREAMS];
} ComponentTimes;

/* The times of the components over all profiles together. `count` is at least 1. */
ComponentTimes component_times(const KinetoProfile *profiles, int count, Arena *arena);
