#ifndef SIMULATOR_SIMULATOR_H
#define SIMULATOR_SIMULATOR_H

/* A host of the executor whose passes take the time of the costs and compute nothing.

   A pass starts when its inputs have arrived and its rank is free, by the real clock; delays of the machine are not
   corrected. So if the measured timeline is as long as the predicted one, then executor and transports add no time. A
   message holds the time at which it was sent, and the latency of the costs counts from there, so it includes the time
   that the transport takes. */

#include "runtime/executor/clocks.h"
#include "runtime/executor/executor.h"
#include "runtime/program/costs.h"

/* The host of one rank. */
typedef struct Simulator {
    const Costs *costs;
    const RankProgram *program;
    int rank;
    const ClockSample *compared; /* [2]: converts to the clock of rank 0, in which messages hold their time */
    double sum;                  /* the sum for which copies of a stage wait in an asynchronous program */
} Simulator;

extern const StageTable simulator_stages;

/* The memory that a chunk of the program needs. */
ChunkPlan simulator_chunk(const Program *program);
/* Call once in the thread of each rank: sleeps then end on time. */
void simulator_begin(void);
/* The costs that affect the program's times, as bits 1 << StageCost. */
uint32_t simulator_costs_used(const Program *program);

#endif
