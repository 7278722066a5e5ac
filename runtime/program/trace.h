#ifndef PROGRAM_TRACE_H
#define PROGRAM_TRACE_H

/* The one form of a trace, modelled (dpc --emit=trace) or measured (dprun --trace): a JSON object of Chrome trace
   events.

   A process a rank (pid), with a thread for each lane: 0 compute, 1 communication, 2 waits. Each instruction is an
   event of phase X and of category compute, message, wait or update (in the lane of compute: what follows the last
   pass). An F&B is one event. The name of an event is its `pass` or `message` below, of a
   wait `wait 4RECV_F5`; what follows the last pass has the disassembler's text. `ts` and `dur` are microseconds. `args`
   say

     step         from 1
     instruction  its number in prog.bin
     line         of the source; 0: none
     pass         compute: what the compiler's CSV calls it, 3F5 or p1:3F5, and 3F5&7B2 for an F&B; 3U1 is the first U
                  of stage 3 in the step
     halves       an F&B whose halves can be told apart: the microseconds that its F took of it, then its B or I. Run in
                  turn, the F comes first; where a CPU runs them component by component, each has the sum of its own
     message      communication and waits: the same, 3SEND_F5 or 4RECV_F5; a wait has that of the message it waits for
     version      compute, of an asynchronous program: the version of its stage's weights that a pass reads or U makes,
                  counted from 0 in every step; two of an F&B

   From the pass that makes a message to the pass that needs it there is an arrow (phases s and f) whose `id` both ends
   derive. A counter of each rank, `activations` (phase C, category memory), has in `held` of its `args` how many it
   holds from then on: from F to the end of B or W. `otherData` has schedule, source, ranks, stages, microbatches (of
   each pipe); `unit`, the seconds that a modelled or simulated trace shows for a unit of its costs, 0 where passes
   computed; `message_bytes`, 0 where that is not known; and `processors`, how many all ranks could share, 0 where that
   is not known or it is not they that compute. */

#include "runtime/program/program.h"

typedef enum TraceLane { LANE_COMPUTE, LANE_COMMUNICATION, LANE_WAITS, TRACE_LANES } TraceLane;

extern const char *const trace_lane_names[TRACE_LANES];
TraceLane trace_lane(uint8_t opcode);

/* When an instruction ran, in microseconds. */
typedef struct TraceSpan {
    double start, end;
    double middle; /* of an F&B: to here its F, from here on its B or I; 0: they cannot be told apart */
} TraceSpan;

void trace_begin(const Program *program, double unit, double message_bytes, uint32_t processors, FILE *stream);
/* The names of a rank's process and threads: once, before its steps. Ranks follow each other in their order. */
void trace_rank(uint32_t rank, FILE *stream);
/* A step of the rank: [instruction_count] spans. `first_step` is the first of the whole trace. False when there is no
   memory. */
bool trace_step(const Program *program, uint32_t rank, uint64_t step, uint64_t first_step, const TraceSpan *spans,
                FILE *stream);
void trace_end(FILE *stream);

#endif
