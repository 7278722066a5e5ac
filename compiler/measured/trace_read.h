#ifndef MEASURED_TRACE_READ_H
#define MEASURED_TRACE_READ_H

/* A trace of dprun --trace or dpc --emit=trace (runtime/program/trace.h), read back: its passes and its waits for
   messages. */

#include "compiler/schedule/schedule.h"
#include "runtime/base/status.h"
#include "runtime/program/program.h"

/* A pass, or a wait for the message of a pass. */
typedef struct TraceEvent {
    uint8_t kind; /* ActionKind: ACTION_F to ACTION_U; ACTION_RECV_F, ACTION_RECV_B */
    bool overlap; /* with the next event: the two are one F&B and both have its times, as both end before its messages
                     leave */
    uint16_t pipe, stage, rank;
    uint32_t microbatch, step, line; /* of U: which it is in the step, from 1 */
    double start, end;               /* ms */
    double half;                     /* ms that it took of its F&B; 0: it is in none, or the trace does not say */
} TraceEvent;

typedef struct Trace {
    const char *path, *schedule, *source;
    uint32_t ranks, stages, pipe_count;
    uint32_t microbatches[PROGRAM_PIPES_MAX];
    double unit;          /* seconds of a unit of the costs; 0: its passes computed */
    double message_bytes; /* 0: not known */
    uint32_t processors;  /* that all ranks shared; 0: not known, or others computed */
    TraceEvent *events;   /* step after step; in a step, of each rank in order */
    size_t count, capacity;
    uint32_t *steps;     /* [step_count], ascending */
    size_t *step_events; /* [step_count + 1]: where the events of each begin */
    uint32_t step_count;
} Trace;

/* All memory is the arena's. STATUS_BAD_INPUT names the file and what is wrong with it, and where. */
Status trace_read(const char *path, Arena *arena, Trace *trace, Error *error);
/* Lists the steps of a trace that has its events, and puts the events of each together, in the order in which they
   are. */
void trace_sort_by_step(Trace *trace, Arena *arena);

/* Ranks waited for processors, not only for each other. */
static inline bool trace_is_crowded(const Trace *trace)
{
    return trace->processors && trace->ranks > trace->processors;
}

/* The events of one step: [first, end). */
typedef struct TraceStep {
    const TraceEvent *first, *end;
} TraceStep;
TraceStep trace_step_events(const Trace *trace, uint32_t step);

/* Forgets all steps but these, ascending. */
void trace_keep_steps(Trace *trace, uint32_t *steps, uint32_t count);

/* The events of one step by what they are. */
typedef struct TraceIndex {
    const Trace *trace;
    const TraceEvent **events;  /* [kind][place], no U; NULL: none */
    size_t places;              /* of a kind: stages times microbatches of all pipes */
    const TraceEvent **updates; /* [update_count]: the U, each copy of a stage has its own; by rank, stage and number */
    size_t update_count;
    uint32_t first[PROGRAM_PIPES_MAX];
} TraceIndex;

TraceIndex trace_index(const Trace *trace, uint32_t step, Arena *arena);
const TraceEvent *trace_find(const TraceIndex *index, uint8_t kind, uint32_t pipe, uint32_t stage, uint32_t microbatch);
const TraceEvent *trace_find_update(const TraceIndex *index, uint32_t rank, uint32_t stage, uint32_t version);

/* The pass that the event waits for: F of the stage before or B or I of the stage behind. NULL: none, or not there. */
const TraceEvent *trace_needed(const TraceIndex *index, const TraceEvent *event);

/* From the first start of a pass of the step to the last end; ms. */
typedef struct TraceExtent {
    double start, end;
} TraceExtent;
TraceExtent trace_extent(const Trace *trace, uint32_t step);

/* The steps from the least makespan to the greatest; of several the very first, in which caches and connections are
   still cold, is left out. At least one. */
uint32_t *trace_steps_by_makespan(const Trace *trace, Arena *arena, uint32_t *count);

/* The one of median makespan. */
uint32_t trace_typical_step(const Trace *trace, Arena *arena);

#endif
