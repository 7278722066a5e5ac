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
    /* the costs have no unit, so diff_scale scaled the prediction: both sides have the same busy time */
    bool scaled;
    double unit; /* ms per unit of the costs; 0: another trace is the prediction */
} Comparison;

/* One step of a trace as a timeline of the schedule, in ms from its first start. STATUS_BAD_INPUT if the trace is
   not complete, or is not of this schedule. */
Status diff_timeline(const Trace *trace, uint32_t step, const Schedule *schedule, Arena *arena, Timeline *times,
                     Error *error);

/* Converts the predicted timeline to ms: by the unit of the costs or, if the measured trace is of a simulated run, by
   the unit of that run. Without a unit, scales it so that all ranks together are busy as long as measured. */
void diff_scale(Comparison *comparison, Arena *arena);

/* Prints start, end, busy and idle time of every rank, the error of the prediction for each rank and for all, the parts
   of both makespans, and the passes that differ most from their prediction. */
void diff_print(const Comparison *comparison, Arena *arena, FILE *stream);

/* Prints the times of the all-to-alls of layers; nothing if the trace has none. */
void diff_print_all_to_alls(const Comparison *comparison, FILE *stream);

/* The order of a trace as the text of a .csv. */
Source diff_order(const Trace *trace, uint32_t step, Arena *arena);

#endif
