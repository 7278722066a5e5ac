#ifndef SIMULATOR_SIMULATOR_H
#define SIMULATOR_SIMULATOR_H

/* A host of the executor whose passes take the time that the costs say and compute nothing.

   A pass begins when its inputs are there and its rank is free, by the clock and not by the model: what the machine is
   late with stays, so that a measured timeline that is as long as the predicted one says that interpreter and
   transports add nothing. A message is its sending time. The model's latency counts from there, so that what the
   transport needs is part of it. */

#include "runtime/executor/clocks.h"
#include "runtime/executor/executor.h"
#include "runtime/program/costs.h"

/* The host of one rank. */
typedef struct Simulator {
    const Costs *costs;
    const RankProgram *program;
    int rank;
    const ClockSample *compared; /* [2]: the time of a message is on rank 0's clock */
    double sum;                  /* an asynchronous program's copies of a stage sum this, and so wait for each other */
} Simulator;

extern const StageTable simulator_stages;

/* What a chunk of the program needs. */
ChunkPlan simulator_chunk(const Program *program);
/* Once in the thread of a rank: sleeps end when they should. */
void simulator_begin(void);
/* The costs that the program's times depend on, as bits 1 << StageCost. */
uint32_t simulator_costs_used(const Program *program);

#endif
