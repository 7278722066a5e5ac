#pragma once

/* The one form of a trace, modelled (dpc --emit=trace) or measured (dprun --trace): a JSON object of Chrome trace
   events.

   One process per rank, with a thread for each lane: 0 compute, 1 communication, 2 waits; if layers have all-to-alls,
   also 3, those of passes and of the first halves of F&Bs and F&Fs, and 4, those of the second halves. If halves run
   one after the other (--in-turn), both use lane 3. Lane 5 has the components inside passes, if their times are known.
   The pid is the rank; with several replicas it is the member of the mesh.

   Each instruction but END, REDUCE and WAIT_REDUCE (see below) is an event of phase X and of category compute (passes
   and U), message, wait or update (NORM and UPDATE, in the lane of compute). An F&B or F&F is one event. The name of an
   event is its `pass` or `message` below; of a wait `wait 4RECV_F5`; of NORM and UPDATE the disassembler's text. `ts`
   and `dur` are in microseconds. `args` has

     step         from 1
     instruction  its number in prog.bin
     line         of the source; 0: none
     pass         compute: the name in the compiler's CSV, 3F5 or p1:3F5, and 3F5&7B2 for an F&B; 3U1 is the first U
                  of stage 3 in the step
     halves       an F&B or F&F whose halves can be told apart: the microseconds of its first F, then those of the other
                  half. If the halves run one after the other, the first F runs first. If a CPU interleaves their
                  components, each time is the sum over the components of that half
     message      communication: the name in the compiler's CSV, 3SEND_F5 or 4RECV_F5; a wait has the name of the
                  message that it waits for
     put_off      1 for an F&B whose I puts the weight gradients of some components off, and for the W that computes
                  them
     version      compute, of an asynchronous program: the version of its stage's weights that an F, B or I reads or U
                  makes, counted from 0 in every step; an F&B has two, a W has none

   A REDUCE and its WAIT_REDUCE are a pair of asynchronous events (phases b and e, category sum, named `sum 3` after the
   stage) from the post to the end of the wait, with `waited` in `args`: the microseconds that both instructions took.
   The rest of the interval is hidden behind other work. The WAIT_REDUCE is also an event of phase X and category update
   in the lane of waits, named `wait sum 3`. In a run with one replica, stages with one copy have no sums, so these are
   left out.

   An all-to-all of a layer is an event of phase X and category all-to-all, from its post until it arrives, named
   `dispatch(F) of layer 3`; the one before it that exchanges the numbers of rows, `counts for dispatch(F) of layer 3`.
   If the time of the arrival is unknown, it ends with its wait (AllToAll.arrival). `args` has step, instruction and
   line; `pass`, the half of the instruction, as 3F5; `layer`; `component`, dispatch or combine; `direction`, F or B;
   and `waited`, the microseconds that the rank spent in its post and its wait. With --device sim only F&Bs and F&Fs
   that follow a recipe have all-to-alls. A modelled trace has none.

   A component is an event of phase X and of category component, named `attention(F) of layer 3`, or `head(F)` outside
   the layers. It is the time in which the rank worked on the component, or waited inside it: dispatch and combine
   include posts and waits of their all-to-alls. A component that the recipe of an F&B or F&F divides has several
   events. `args` has step, instruction, line, pass, layer, component and direction (F, B or W) as above, but no layer
   outside the layers. A pass on a GPU and a pass in a modelled trace have no such events. With --device sim a pass
   has them if its time is the sum of the times of its components (see simulator.h).

   An arrow (phases s and f) goes from the pass that makes a message to the pass that needs it; both ranks compute its
   `id` from the message. Unless the program is forward-only, each rank has a counter `activations` (phase C, category
   memory): `held` in its `args` is the number of activations that the rank holds from then on, each from its F to the
   end of its B or W. `otherData` has schedule, source, ranks, replicas (if there are several), reference (true in a
   trace of --reference), stages, microbatches (of each pipe); `unit`, the seconds of one unit of the costs in a
   modelled or simulated trace, 0 if passes computed; `message_bytes`, 0 if unknown; and `processors`, the number that
   all ranks shared, 0 if unknown, if a GPU computed, or in a modelled or simulated trace. */

#include "base/mesh.h"
#include "program/parts.h"
#include "program/program.h"

/* The first TRACE_LANES lanes are for instructions. The others are only in some traces. */
typedef enum TraceLane {
    LANE_COMPUTE,
    LANE_COMMUNICATION,
    LANE_WAITS,
    TRACE_LANES,
    LANE_ALL_TO_ALLS = TRACE_LANES,
    LANE_OF_SECOND_HALF,
    LANE_COMPONENTS,
    TRACE_LANES_MOST
} TraceLane;

extern const char *const trace_lane_names[TRACE_LANES_MOST];
TraceLane trace_lane(uint8_t opcode);

/* The times of an instruction, in microseconds. */
typedef struct TraceSpan {
    double start, end;
    /* of an F&B or F&F: the end of its first F and start of its other half; if components of both halves alternated,
       `start` plus the total time of the first F; 0: unknown, or no pair */
    double middle;
} TraceSpan;

/* The time of something inside a pass, in microseconds: of a component, or of an all-to-all. */
typedef struct TracePart {
    uint32_t layer;     /* NO_LAYER: outside the layers */
    uint8_t part, pass; /* ModelPart; RECIPE_F, B or W */
    uint8_t half;       /* of an F&B or F&F whose halves run together: 0 or 1; otherwise 0 */
    bool counts;        /* an all-to-all that exchanges numbers of rows, not rows */
    double start, end;
    double waited; /* of an all-to-all: microseconds that the rank spent in its post and its wait */
} TracePart;

/* Things inside passes, in the order of their starts. */
typedef struct TraceParts {
    const TracePart *entries; /* [count] */
    size_t count;
} TraceParts;

/* The times of a step of a member. */
typedef struct TraceTimes {
    const TraceSpan *spans; /* [instruction_count] of its rank */
    TraceParts all_to_alls, components;
} TraceTimes;

/* What a trace says of its run as a whole. */
typedef struct TraceFacts {
    int replicas;         /* 0: one */
    bool reference;       /* the run was dprun --reference: one rank did the work of all ranks */
    double unit;          /* seconds per unit of the costs; 0: passes computed */
    double message_bytes; /* 0: unknown */
    uint32_t processors;  /* how many processors all ranks shared; 0: unknown, or no processors computed */
} TraceFacts;

void trace_begin(const Program *program, const TraceFacts *facts, FILE *stream);
/* Writes the names of the process and threads of a member. Call it once for each member, before its steps, in the order
   of the members. lanes: bits 1 << TraceLane: the lanes that the member has. */
void trace_member(Mesh mesh, int member, unsigned lanes, FILE *stream);
/* Writes a step of a member. `first_step`: the first step of the whole trace. False: out of memory. */
bool trace_step(const Program *program, Mesh mesh, int member, uint64_t step, uint64_t first_step,
                const TraceTimes *times, FILE *stream);
void trace_end(FILE *stream);
