#ifndef PROGRAM_COSTS_H
#define PROGRAM_COSTS_H

/* What passes and messages are taken to cost: times in any one unit, sizes in bytes. Read by --cost of dpc and dprun.
   A cost file has one setting a line (runtime/base/settings.h). On the command line commas separate the same settings.

     F = 1                 times of passes: F forward, I and W the halves of a backward, B a full backward, U an update
     F[3] = 1.2            of the weights, FB an F&B; [3]: of stage 3 alone. Copies of a stage in several pipes are one
     overlap = 0.8         where FB is not given, an F&B takes this much of what its halves take in turn
     memory_I = 34M        bytes that a microbatch holds of a stage from its F to the end of its I or B,
     memory_W = 32M        and then to the end of its W
     comm = 0.1            latency of a message between two ranks, and
     comm[0->1] = 0.5      of one from rank 0 to rank 1
     bytes = 96M           of a message, which takes comm + bytes / bandwidth
     bandwidth = 25G       bytes in a unit of time, or in a second where `unit` says how long a unit is; also [0->1]
     unit = 1e-3           seconds
     stages = 8            the times and the memory of stages are those of a model in so many stages; a schedule that
                           cuts it into another number gives each of its stages the share that it takes of these
     attention.F = 0.3     of a component of a layer (base/parts.h): F, B (its input half), W. Where some are
                           given, the others take none
     layers = 4            layers of a stage: F, I, W of the stage follow from its components, and FB from the recipe
                           of F&Bs if there is one
     compute_share = 0.85  of the multiprocessors, on which the times of components that compute were measured: beside
                           communication
     multiprocessors = 20  that communication within a layer needs for its time, where the recipe keeps a share for it;
                           on fewer it takes longer (recipe_times.h)

     model_layers = 8      layers of the whole model: F, I, W and U of every stage are the sums over its parts, for any
                           number of stages. `layers` has no meaning then
     head.F = 0.5          of a part of the model: the components, with U too, and embedding, rows, first_layer, head,
                           squared_error (base/parts.h); dprun --profile measures them

   Of what is given more than once the last counts. Numbers of bytes may end in K, M, G or T, powers of 1024. */

#include "runtime/base/arena.h"
#include "runtime/base/recipe.h"
#include "runtime/base/status.h"

#include <stdint.h>

/* What every stage may have a cost of its own for. The first are the kinds of passes. */
typedef enum StageCost {
    COST_F,
    COST_B,
    COST_I,
    COST_W,
    COST_U,
    COST_FB,
    COST_MEMORY_I,
    COST_MEMORY_W,
    STAGE_COSTS
} StageCost;

typedef struct LinkCost {
    uint32_t from, to;         /* ranks */
    double latency, bandwidth; /* < 0: as for all */
} LinkCost;

/* A cost that was not given for some stages and follows from others, or is the default though stages have costs of
   their own. */
typedef struct DerivedCost {
    StageCost cost;
    uint32_t count;
    const uint32_t *stages; /* [count], ascending, of those that the costs are given for */
    const double *values;   /* [count] */
    const char *where;      /* the stages in words: "[0..3,5]"; "" where costs are given for all stages alike */
    const char *rule;       /* in words */
} DerivedCost;

/* As they were given, or as costs_resolve completed them. */
typedef struct Costs {
    double all[STAGE_COSTS];       /* of every stage that has none of its own; < 0: not given */
    double (*stages)[STAGE_COSTS]; /* [stage_count], the arena's; < 0: as for all */
    uint32_t stage_count;
    double overlap;            /* < 0: not given, 1 */
    double latency, bandwidth; /* bandwidth < 0: a message takes no more than its latency */
    LinkCost *links;           /* [link_count], sorted; the arena's */
    uint32_t link_count, link_capacity;
    double bytes;                           /* of a message */
    double unit;                            /* seconds; < 0: not given */
    double parts[MODEL_PARTS][PART_PASSES]; /* those of a layer: of one layer; < 0: not given */
    double layers;                          /* of a stage; < 1: one */
    double model_stages;        /* how many stages the costs are of; 0: not given, as many as the schedule has */
    double model_layers;        /* of the whole model; < 1: not given */
    double multiprocessors;     /* that communication within a layer needs; 0: any share is enough */
    double compute_share;       /* of the multiprocessors, that computing had when it was measured; 0: all */
    uint32_t said;              /* bits 1 << StageCost: given for all stages, not by default */
    const DerivedCost *derived; /* [derived_count], the arena's; of costs_resolve */
    uint32_t derived_count;
} Costs;

extern const Costs costs_unit; /* F = I = W = 1, U = comm = 0 */

/* `text` is what follows --cost: NAME=VALUE,... or @FILE ("@-": standard input). What it says comes over what is there.
   STATUS_BAD_USAGE names what is wrong with the text, STATUS_BAD_INPUT what is with the file, with FILE:LINE. */
Status costs_set(Costs *costs, const char *text, Arena *arena, Error *error);

/* "F", "memory_I": the key of a cost. */
const char *stage_cost_name(StageCost cost);

/* What is given for a stage, or else for all, or else the default. < 0: nothing. */
double costs_given(const Costs *costs, uint32_t stage, StageCost cost);
/* Time of a pass. B: what was given, of the stage or of all, else I + W. */
double costs_pass(const Costs *costs, uint32_t stage, StageCost kind);
/* Time of an F&B: a forward of one stage and a B or I of another. Each half takes its share of the FB of its stage; an
   I has a share in it as if there were a B. */
double costs_pair(const Costs *costs, uint32_t forward, uint32_t backward, StageCost backward_kind);
/* Time of a message between ranks; 0 on one rank. */
double costs_message(const Costs *costs, uint32_t from, uint32_t to);
/* Bytes that a microbatch holds of a stage before its I, and before its W. 0: not given. */
double costs_memory(const Costs *costs, uint32_t stage, StageCost memory);
/* Seconds of a unit of time: a thousandth where nothing else is said. */
double costs_seconds(const Costs *costs);
/* The unit of time as words to put after a figure: " ms". "" where it is not said, or has no name. */
const char *costs_unit_text(const Costs *costs);

#endif
