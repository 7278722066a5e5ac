#pragma once

/* A host of the executor whose passes take the time that the costs say and compute nothing. Sums of gradients take no
   time, as in the timelines that dpc predicts (dpc compare --replicas adds their time).

   A pass starts when its inputs have arrived and its rank is free, by the real clock. A delay of the machine delays
   everything after it. So if the measured timeline is as long as the predicted one, the executor and the transports add
   no time. A message holds the time at which it was sent. It arrives when the message time of the costs has passed
   since then, so the time that the transport really takes is a part of that time.

   An F&B or F&F takes the time of the costs as a whole. But if that time follows from a recipe and the times of
   components (Costs.follows_recipe), the simulator walks the operations of the pair as a real run does (pair.h). An
   operation that computes sleeps for its time. The walk posts communications without waiting for them. They run one
   after the other on the link of the rank. A wait ends when its communication has ended.

   A trace shows the components of a pass if the time of the pass is the sum of their costs, but none of a W that
   computes only put-off weight gradients (with --in-turn: nor of the rest of that W). A pass alone is one sleep, which
   the trace divides as the costs say. */

#include "base/flights.h"
#include "program/times/part_spans.h"
#include "runtime/executor/clocks.h"
#include "runtime/executor/executor.h"
#include "program/times/costs.h"
#include "runtime/simulator/pair.h"

/* The host of one rank. */
typedef struct Simulator {
    const Costs *costs;
    const RankProgram *program;
    int rank;
    /* [2]: the clock comparisons by which this rank converts its time to rank 0's clock; messages hold times of that
       clock. [1] is all zero until the end of the run */
    const ClockSample *compared;
    const Recipes *recipes; /* the recipes of the program's F&Bs or F&Fs */
    /* [simulator_orders]: the order of each recipe, the common one last. If the recipe of an order is NULL, each of its
       F&Bs or F&Fs is one sleep */
    const PairOrder *orders;
    uint32_t stages;       /* number of stages of the model */
    Flights *flights;      /* where to note the times of communications; NULL: not wanted */
    PartSpans *components; /* where to note when components ran; NULL: not wanted */
    /* the one element that REDUCE sums in an asynchronous program, so that the copies of a stage wait for each other */
    double sum;
} Simulator;

/* The number of orders that simulator_of fills in for the program. */
size_t simulator_orders(const Program *program);
/* The host of rank `rank`. `costs` are those of costs_resolve, `compared` is as in Simulator, `orders` has room for
   simulator_orders(program) and is filled here; all three must outlive the result. */
Simulator simulator_of(const Program *program, int rank, const Costs *costs, const ClockSample *compared,
                       PairOrder *orders);

extern const StageTable simulator_stages;

/* The memory that a chunk of the program needs. */
ChunkPlan simulator_chunk(const Program *program);
/* Call it once in the thread of each rank: it lowers the timer slack of the thread, so that sleeps end on time. */
void simulator_begin(void);
/* The number of communications that the instruction posts: none unless it is an F&B or F&F whose inside is walked. */
size_t simulator_flights(const Simulator *simulator, const Instruction *instruction);
/* The most spans that this pass, or half of an F&B or F&F, notes in Simulator.components. For a B: the most that each
   of its two halves, I and W, notes. */
size_t simulator_spans_most(const Simulator *simulator, const Instruction *pass);
/* Which costs affect the times of the program, as bits 1 << StageCost. */
uint32_t simulator_costs_used(const Program *program);
