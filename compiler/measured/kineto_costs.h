#ifndef MEASURED_KINETO_COSTS_H
#define MEASURED_KINETO_COSTS_H

/* `dpc calibrate --map`: what the components of a layer took in a trace of the PyTorch profiler, as a cost file and as
   a table. */

#include "compiler/measured/kineto_profile.h"

#include <stdio.h>

/* `dpc calibrate --map`: from `count` traces, each of another rank or time of the same model, to the file `output`
   ("-": stdout). The table goes to stdout, or where the costs go there, to stderr. STATUS_BAD_INPUT: a trace or the map
   is wrong, or no kernel is of a component. */
Status kineto_calibrate(const KinetoMap *map, int count, char *const *paths, const char *output, Arena *arena,
                        Error *error);

/* Mean time, least and greatest of each component, in microseconds. */
typedef struct ComponentTime {
    uint8_t subject;
    uint32_t count;
    double mean, least, greatest;
    double data; /* mean time of the data alone; NAN: no kernel of it moves data */
} ComponentTime;

typedef struct ComponentTimes {
    ComponentTime entries[RECIPE_STREAMS][RECIPE_ENTRIES]; /* in the order in which they run */
    uint32_t counts[RECIPE_STREAMS];
} ComponentTimes;

/* Of all profiles together; at least one. */
ComponentTimes component_times(const KinetoProfile *profiles, int count, Arena *arena);

#endif
