#ifndef MEASURED_TRACE_READ_H
#define MEASURED_TRACE_READ_H

/* Reads a trace of dprun --trace or dpc --emit=trace (runtime/program/trace.h): its passes, its waits for
   messages and its all-to-alls. All replicas run the same passes; only those of the first replica are read. */

#include "compiler/schedule/schedule.h"
#include "runtime/base/status.h"
#include "runtime/program/program.h"

/* A pass, or a wait for the message of a pass. */
typedef struct TraceEvent {
    uint8_t kind; /* ActionKind: ACTION_F to ACTION_U; ACTION_RECV_F, ACTION_RECV_B */
    bool overlap; /* this event and the next one are one F&B or F&F; both have the start and the end of the whole */
    uint16_t pipe, stage, rank;
    uint32_t microbatch, step, line; /* microbatch: of a U, the version that it makes: 1, 2, ... */
    double start, end;               /* ms */
    /* ms that this half of an F&B took; 0: the pass is in no F&B, or the trace does not say */
    double half;
} TraceEvent;

/* An all-to-all of rows inside a layer. Times are in ms. */
typedef struct TraceAllToAll {
    uint8_t component, pass; /* RECIPE_DISPATCH or RECIPE_COMBINE; RECIPE_F or RECIPE_B */
    uint32_t step;
    double time, waited; /* from its post to its arrival; the part in which its rank waited for it */
} TraceAllToAll;

typedef struct Trace {
    const char *path, *schedule, *source;
    uint32_t ranks, stages, pipe_count;
    uint32_t replicas; /* of the pipeline; 0: one */
    bool reference;    /* one rank did the work of all (dprun --reference) */
    uint32_t microbatches[PROGRAM_PIPES_MAX];
    double unit;          /* of a simulated run: seconds per unit of the costs; 0: not a simulated run */
    double message_bytes; /* 0: unknown */
    uint32_t processors;  /* number of processors that all ranks shared; 0: unknown, or GPUs computed */
    TraceEvent *events;   /* step after step, in a step rank after rank, and on a rank in the order in which they ran */
    size_t count;
    TraceAllToAll *all_to_alls; /* [all_to_all_count], in the order of the file */
    size_t all_to_all_count;
    uint32_t *steps;     /* [step_count], ascending */
    size_t *step_events; /* [step_count + 1]: the first event of each step */
    uint32_t step_count;
} Trace;

/* The arena owns all memory. STATUS_BAD_INPUT names the file, the position and what is wrong. */
Status trace_read(const char *path, Arena *arena, Trace *trace, Error *error);
/* Lists the steps of a trace and sorts its events by step. The order within a step stays. */
void trace_sort_by_step(Trace *trace, Arena *arena);

/* The number of ranks of all replicas together. */
static inline uint32_t trace_all_ranks(const Trace *trace)
{
    return trace->ranks * (trace->replicas ? trace->replicas : 1);
}

/* Whether there were more ranks than processors, so that ranks waited for a processor too. */
static inline bool trace_is_crowded(const Trace *trace)
{
    return trace->processors && trace_all_ranks(trace) > trace->processors;
}

/* The events of one step: [first, end). */
typedef struct TraceStep {
    const TraceEvent *first, *end;
} TraceStep;
TraceStep trace_step_events(const Trace *trace, uint32_t step);

/* Removes all steps except the `count` given ones, which must be in ascending order. */
void trace_keep_steps(Trace *trace, uint32_t *steps, uint32_t count);

/* The events of one step, by pass. */
typedef struct TraceIndex {
    const Trace *trace;
    const TraceEvent **events;  /* [kind, without U][pipe, stage and microbatch]: the event; NULL: there is none */
    size_t places;              /* entries of `events` for each kind: stages * microbatches of all pipes */
    const TraceEvent **updates; /* [update_count]: the U of all copies, sorted by rank, stage and version */
    size_t update_count;
    uint32_t first[PROGRAM_PIPES_MAX];
} TraceIndex;

TraceIndex trace_index(const Trace *trace, uint32_t step, Arena *arena);
const TraceEvent *trace_find(const TraceIndex *index, uint8_t kind, uint32_t pipe, uint32_t stage, uint32_t microbatch);
const TraceEvent *trace_find_update(const TraceIndex *index, uint32_t rank, uint32_t stage, uint32_t version);

/* The pass that the event waits for: the F of the stage before, or the B or I of the stage after. NULL: none, or not
   in the trace. */
const TraceEvent *trace_needed(const TraceIndex *index, const TraceEvent *event);

/* The first start and the last end of all passes of a step, in ms. */
typedef struct TraceExtent {
    double start, end;
} TraceExtent;
TraceExtent trace_extent(const Trace *trace, uint32_t step);

/* The steps of the trace, sorted by makespan, the shortest first. If the trace has several steps, the first one that
   ran is left out, because caches and connections are cold in it. */
uint32_t *trace_steps_by_makespan(const Trace *trace, Arena *arena, uint32_t *count);

/* The step of median makespan. */
uint32_t trace_typical_step(const Trace *trace, Arena *arena);

#endif
