#ifndef SIMULATOR_SIMULATOR_H
#define SIMULATOR_SIMULATOR_H

/* A host of the executor whose passes take the time that the costs say and compute nothing.

   A pass starts when its inputs have arrived and its rank is free, by the real clock. A delay of the machine delays
   everything after it. So if the measured timeline is as long as the predicted one, the executor and the transports add
   no time. A message holds the time at which it was sent, and the message time of the costs counts from then on; so the
   time that the transport takes is part of it.

   An F&B or F&F takes the time of the costs as a whole; or, if that follows from a recipe and the times of components
   (Costs.follows_recipe), the simulator walks the operations of the pair as a real run does (pair.h). An operation that
   computes sleeps for its time. A communication is posted and runs on the link of its rank, one after the other, while
   the walk goes on. A wait ends when the communication has ended. */

#include "runtime/base/flights.h"
#include "runtime/executor/clocks.h"
#include "runtime/executor/executor.h"
#include "runtime/program/costs.h"
#include "runtime/simulator/pair.h"

/* The host of one rank. */
typedef struct Simulator {
    const Costs *costs;
    const RankProgram *program;
    int rank;
    /* [2]: the clock comparisons by which this rank converts its time to rank 0's clock; messages hold times of that
       clock */
    const ClockSample *compared;
    const Recipes *recipes; /* the recipes of the program's pairs */
    uint32_t stages;        /* of the model */
    Flights *flights;       /* where to note the times of communications; NULL: not wanted */
    /* the one element that REDUCE sums in an asynchronous program, so that the copies of a stage wait for each other */
    double sum;
} Simulator;

/* The host of rank `rank`. `costs` are those of costs_resolve, `compared` is as in Simulator; both must outlive the
   result. */
Simulator simulator_of(const Program *program, int rank, const Costs *costs, const ClockSample *compared);

extern const StageTable simulator_stages;

/* The memory that a chunk of the program needs. */
ChunkPlan simulator_chunk(const Program *program);
/* Call once in the thread of each rank: sleeps then end on time. */
void simulator_begin(void);
/* The number of communications that the instruction posts: none unless it is a pair whose inside is walked. */
size_t simulator_flights(const Simulator *simulator, const Instruction *instruction);
/* Which costs affect the times of the program, as bits 1 << StageCost. */
uint32_t simulator_costs_used(const Program *program);

#endif
