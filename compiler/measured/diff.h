#ifndef MEASURED_DIFF_H
#define MEASURED_DIFF_H

/* Compares a predicted and a measured timeline of one schedule. */

#include "compiler/measured/trace_read.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"

typedef struct Comparison {
    const Schedule *schedule;
    const PassTable *table;
    const Trace *trace;           /* the measured one */
    uint32_t step;                /* of `trace` */
    Timeline predicted, measured; /* ms */
    bool scaled;                  /* the prediction has no unit of its own and was scaled to the measured busy time */
    double unit;                  /* ms per unit of the costs; 0: another trace is the prediction */
} Comparison;

/* One step of a trace as a timeline of the schedule, in ms from its first start. STATUS_BAD_INPUT if the trace is
   not complete, or is not of this schedule. */
Status diff_timeline(const Trace *trace, uint32_t step, const Schedule *schedule, Arena *arena, Timeline *times,
                     Error *error);

/* Converts the predicted timeline to ms: by the unit of the costs, or that of a simulated run. Without either it is
   scaled so that both sides are busy for the same time. */
void diff_scale(Comparison *comparison, Arena *arena);

/* Prints start, end, busy and idle time of every rank, the error of each and of all, the parts of the makespans, and
   the passes that differ most. */
void diff_print(const Comparison *comparison, Arena *arena, FILE *stream);

/* The order of a trace as the text of a .csv. */
Source diff_order(const Trace *trace, uint32_t step, Arena *arena);

#endif
