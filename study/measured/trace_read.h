#pragma once

/* Reads a trace of dprun --trace or dpc --emit=trace (program/times/trace.h): its passes, its waits for messages, and
   the components and all-to-alls inside passes. All replicas run the same passes; only those of the first replica are
   read. */

#include "compiler/schedule/schedule.h"
#include "program/recipe.h"
#include "base/status.h"
#include "program/program.h"

/* A pass, or a wait for a message. */
typedef struct TraceEvent {
    uint8_t kind; /* ActionKind: of a pass ACTION_F to ACTION_U, of a wait ACTION_RECV_F or ACTION_RECV_B */
    bool overlap; /* this event and the next one are an F&B or F&F; both have the start and end of the whole */
    uint16_t pipe, stage, rank;
    /* microbatch: for a U the version that it makes, from 1; line: in the schedule file, 0: unknown */
    uint32_t microbatch, step, line;
    double start, end; /* ms */
    /* this is the I of an F&B that puts weight gradients off, or the later W that computes those weight gradients */
    bool put_off;
    /* If the event is half of an F&B that puts weight gradients off, dpc calibrate sets this to the time in ms of the
       later W that computes them. Otherwise 0. */
    double after;
    /* time of this half of an F&B or F&F in ms; 0: the pass runs alone, or the trace does not tell the halves apart */
    double half;
} TraceEvent;

/* A component that ran inside a pass, or an all-to-all of rows. Times are in ms. */
typedef struct TraceComponent {
    bool all_to_all;
    RecipeEntry entry; /* component: a ModelPart, also one outside the layers; pass: RECIPE_F, RECIPE_B or RECIPE_W */
    uint16_t pipe, stage, rank;
    uint32_t layer; /* number of the layer in the whole model; NO_LAYER: outside the layers */
    uint32_t microbatch, step;
    /* when the component began and ended; for an all-to-all: when it was posted, and when its rows had arrived */
    double start, end;
    double waited; /* for an all-to-all: how long the rank waited for it; otherwise 0 */
} TraceComponent;

typedef struct Trace {
    const char *path, *schedule, *source;
    const char *notes; /* what the user should know about the times, as lines; "": nothing */
    uint32_t ranks, stages, pipe_count;
    uint32_t replicas; /* replicas of the pipeline; 0: one */
    bool reference;    /* a single rank did the work of all ranks (dprun --reference) */
    bool mapped;       /* made from traces of the PyTorch profiler, one of each rank (kineto_passes) */
    uint32_t microbatches[PROGRAM_PIPES_MAX];
    /* seconds per unit of the costs if the run was modelled or simulated; 0: the passes computed */
    double unit;
    double message_bytes; /* size of a message; 0: unknown */
    uint32_t
        processors; /* number of processors that the ranks shared; 0: unknown, GPUs, or a modelled or simulated run */
    /* [count], sorted by step; within a step in the order of the file, in which each rank has its events in the order
       of time */
    TraceEvent *events;
    size_t count;
    TraceComponent *components; /* [component_count]: in the order of the file */
    size_t component_count;
    uint32_t *steps; /* [step_count]: the numbers of the steps, ascending */
    /* [step_count + 1]: index in `events` of the first event of each step; the last element is `count` */
    size_t *step_events;
    uint32_t step_count;
} Trace;

/* Reads the trace at `path` into memory of the arena, and aligns the clocks of its ranks (trace_align.h).
   STATUS_BAD_INPUT: the error names the file and what is wrong. */
Status trace_read(const char *path, Arena *arena, Trace *trace, Error *error);
/* Lists the steps of a trace, and sorts its events by step; within a step they keep their order. */
void trace_sort_by_step(Trace *trace, Arena *arena);

/* Adds a line to the notes. */
void trace_note(Trace *trace, Arena *arena, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The number of ranks of all replicas of the pipeline together. */
static inline uint32_t trace_all_ranks(const Trace *trace)
{
    return trace->ranks * (trace->replicas ? trace->replicas : 1);
}

/* Whether there were more ranks than processors, so that ranks also waited for a processor. */
static inline bool trace_is_crowded(const Trace *trace)
{
    return trace->processors && trace_all_ranks(trace) > trace->processors;
}

/* The events of one step: first to end - 1. */
typedef struct TraceStep {
    const TraceEvent *first, *end;
} TraceStep;
TraceStep trace_step_events(const Trace *trace, uint32_t step);

/* The components and all-to-alls of one step, sorted. `compare` compares two pointers to them, as qsort's does. */
const TraceComponent **trace_step_components(const Trace *trace, uint32_t step,
                                             int (*compare)(const void *, const void *), Arena *arena, size_t *count);

/* Removes the events of all steps except the `count` given ones; `components` keeps those of all steps. `steps`:
   ascending numbers of steps of the trace, which keeps the array. */
void trace_keep_steps(Trace *trace, uint32_t *steps, uint32_t count);

/* Finds an event of one step by its kind, pipe, stage and microbatch, and a U by its rank, stage and version. */
typedef struct TraceIndex {
    const Trace *trace;
    /* [kind of action][pipe, stage and microbatch]: the event; NULL: there is none. The U are in `updates` instead */
    const TraceEvent **events;
    size_t places;              /* number of entries of `events` for each kind: stages * microbatches of all pipes */
    const TraceEvent **updates; /* [update_count]: the U of all copies of stages, sorted by rank, stage and version */
    size_t update_count;
    uint32_t first[PROGRAM_PIPES_MAX];
} TraceIndex;

TraceIndex trace_index(const Trace *trace, uint32_t step, Arena *arena);
const TraceEvent *trace_find(const TraceIndex *index, uint8_t kind, uint32_t pipe, uint32_t stage, uint32_t microbatch);
const TraceEvent *trace_find_update(const TraceIndex *index, uint32_t rank, uint32_t stage, uint32_t version);

/* The pass that computes what the event (a pass or a wait) needs from another stage: the F of the stage before, or
   the B or I of the stage after. NULL: it needs nothing, or the trace does not have the pass. */
const TraceEvent *trace_needed(const TraceIndex *index, const TraceEvent *event);

/* The first start and the last end of all passes of a step (on all ranks), in ms. */
typedef struct TraceExtent {
    double start, end;
} TraceExtent;
TraceExtent trace_extent(const Trace *trace, uint32_t step);

/* Lists the steps of the trace by makespan, the shortest first. Step 1 of a run is left out if there are others:
   caches and connections are cold in it. */
uint32_t *trace_steps_by_makespan(const Trace *trace, Arena *arena, uint32_t *count);

/* The number of the step of median makespan among those that trace_steps_by_makespan lists; of two middle ones, the
   shorter. */
uint32_t trace_typical_step(const Trace *trace, Arena *arena);
