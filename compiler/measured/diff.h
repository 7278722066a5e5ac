#ifndef MEASURED_DIFF_H
#define MEASURED_DIFF_H

/* A predicted and a measured timeline of one schedule, side by side. */

#include "compiler/measured/trace_read.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"

typedef struct Comparison {
    const Schedule *schedule;
    const PassTable *table;
    const Trace *trace;           /* the measured one */
    uint32_t step;                /* of it */
    Timeline predicted, measured; /* ms */
    bool scaled; /* the prediction has no unit of its own: it was stretched to the measured busy time */
    double unit; /* ms of a unit of the costs; 0: predicted by another trace */
} Comparison;

/* One step of a trace as a timeline of the schedule, in ms from its first start on. STATUS_BAD_INPUT when the trace is
   not of the schedule, or not complete. */
Status diff_timeline(const Trace *trace, uint32_t step, const Schedule *schedule, Arena *arena, Timeline *times,
                     Error *error);

/* The predicted timeline, in units of the costs, in ms: by the costs' own unit, by that of a simulated run, or, without
   either, so that both do their work in the same time. */
void diff_scale(Comparison *comparison, Arena *arena);

/* Start, end, busy and idle time of every rank; the error of each and of all; of what the makespans consist; the passes
   that err most. */
void diff_print(const Comparison *comparison, Arena *arena, FILE *stream);

/* The order of a trace, as the text of a .csv. */
Source diff_order(const Trace *trace, uint32_t step, Arena *arena);

#endif
