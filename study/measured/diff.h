#pragma once

/* Compares a predicted and a measured timeline of one schedule. */

#include "study/measured/trace_read.h"
#include "compiler/schedule/passes.h"
#include "compiler/schedule/timeline.h"
#include "program/times/recipe_times.h"

typedef struct Comparison {
    const Schedule *schedule;
    const PassTable *table;
    const Trace *trace;           /* the measured trace */
    uint32_t step;                /* the compared step of `trace` */
    Timeline predicted, measured; /* in ms */
    /* the costs have no unit, so diff_scale has scaled the prediction to the measured busy time */
    bool scaled;
    double unit; /* ms per unit of the costs; 0: the prediction is a trace */
} Comparison;

/* Makes a timeline of the schedule from one step of a trace, in ms from the first start in this step. STATUS_BAD_INPUT:
   the trace is incomplete, or its sizes, its passes or their order are not those of the schedule. */
Status diff_timeline(const Trace *trace, uint32_t step, const Schedule *schedule, Arena *arena, Timeline *times,
                     Error *error);

/* Converts the predicted timeline to ms: with the unit of the costs or, if they have none and the measured trace is
   of a simulated run, with the unit of that run. If neither has a unit, scales the timeline so that all ranks
   together are busy for as long as measured. */
void diff_scale(Comparison *comparison, Arena *arena);

/* Prints start, end, busy and idle time of every rank; the error of the prediction for each rank and for the
   makespan; the parts of both makespans; the passes that differ most from the prediction in length or start; what
   diff_print_components prints; and the costs that were not given. */
void diff_print(const Comparison *comparison, Arena *arena, FILE *stream);

/* Prints the predicted and measured mean times of the components and all-to-alls inside passes; nothing if the trace
   has none. */
void diff_print_components(const Comparison *comparison, Arena *arena, FILE *stream);

/* The inside of an F&B, as predicted from its recipe and as measured. Times are in ms. */
typedef struct InsidePair {
    RecipeTimes predicted, measured;
    const char *name; /* where the F&B was measured: trace, step, rank and passes, as text */
} InsidePair;

/* Writes the prediction of the recipe for F&Bs, and the measured inside of an F&B of the compared step: the one of
   median length. False: the schedule has no recipe for all F&Bs, no component has a cost, the costs cannot be converted
   to ms, the trace has no components, or no F&B has as many layers as the prediction. The arena owns all memory. */
bool diff_inside(const Comparison *comparison, Arena *arena, InsidePair *result);

/* The order in which one step of a trace ran, as the text of a .csv. */
Source diff_order(const Trace *trace, uint32_t step, Arena *arena);
