#pragma once

/* Compiles one schedule with given sizes, parameters, costs and memory limits. The result is the figures for a row of
   a table, or the reason why there are none. All state is in the arguments, so several trials may run at once, each
   with an arena of its own. */

#include "study/trials/published.h"
#include "compiler/lower/gap.h"
#include "compiler/schedule/gradient_sums.h"
#include "compiler/search/search.h"
#include "compiler/tree/values.h"

typedef struct Trial {
    const Source *source;
    Parameters parameters; /* ranks and microbatches if they are given, and the -D that the schedule must declare */
    /* further -D, without ranks and microbatches: each is used only if the schedule declares it; NULL: none */
    const Parameters *optional;
    /* use the least number of ranks that gives this many stages; 0: use the number of ranks in `parameters` */
    uint32_t stages;
    /* `costs` and the sizes in `memory` are for 1/parts of the model, but the costs can give another number of stages
       for themselves (trial_costs_stages); 0: for one stage of this schedule */
    uint32_t parts;
    const Costs *costs;
    /* number of replicas that sum their gradients; 0: sums of gradients are not counted */
    uint32_t replicas;
    /* sizes of slots, and memory limits; see CompareRow.fit */
    const Memory *memory;
    const SearchControl *search; /* controls the search of `order auto`; NULL: search to the end */
} Trial;

/* Whether a program keeps the memory limits, if there are any. */
typedef enum Fit {
    FITS,
    FIT_UNKNOWN, /* sizes of slots that the program has are missing; the given ones alone keep the limit */
    EXCEEDS
} Fit;

typedef struct CompareRow {
    const char *path, *name;     /* path: of the file; name: of the schedule, or the path if the name is unknown */
    const Parameter *parameters; /* the parameters given by -D that the schedule declares, each once */
    uint32_t parameter_count;
    const char *reason; /* why the row has no figures; NULL: it has figures */
    /* printed diagnostics of a schedule that does not compile; NULL: it compiles, it refuses the sizes or parameters,
       or it has more stages than the model has layers */
    const char *diagnostics;
    uint32_t ranks, stages, microbatches;
    double makespan;
    GradientSums sums; /* what the sums of gradients over replicas cost; `makespan` includes sums.added */
    /* gap between the makespan without the sums of gradients and its lower bound over all orders within the memory
       limits. Limits of `memory` count only if the row is known to keep them. If no limit counts: over all orders that
       hold no more activations than the orders of the row */
    Gap gap;
    Bubble bubble;
    BubbleCauses causes;
    uint32_t peak;     /* most saved activations on a rank, each of one stage and microbatch */
    double copies;     /* copies of the model's weights on all ranks together; each version counts */
    uint64_t messages; /* number of messages that all ranks send in a step */
    /* bytes of all messages of a step; 0: there are none, or the costs do not give the size of a message */
    double bytes;
    /* bytes of the rank that needs most, at its peak, missing sizes counted as 0; 0: neither costs nor slots have sizes
     */
    double memory;
    uint32_t missing; /* if slots have sizes: those that the program needs and nobody gave (memory_missing) */
    Fit fit;
    uint32_t derived;  /* the derived costs that the schedule uses, as bits 1 << StageCost */
    bool asynchronous; /* the schedule updates weights within the step */
    bool forward_only; /* the schedule has no backward passes */
    bool is_order;     /* the file is a .csv */
    bool searched;     /* the file has `order auto` */
    bool by_costs;     /* the program depends on the costs: the file has cost(), `order auto` or `overlap F&B auto` */
    bool has_published;
    PublishedBubble published;
} CompareRow;

/* The number of stages for which the costs are given. The first of these rules that applies decides:
   - the costs give the number (Costs.model_stages);
   - some costs are of single stages, as F[3]: the number is the highest such stage + 1, and `*assumed` becomes true.
     This rule does not apply if one of these costs is also given for all stages and all such stages are below `parts`;
   - otherwise the number is `parts`. */
uint32_t trial_costs_stages(const Costs *costs, uint32_t parts, bool *assumed);

/* The sizes of the schedule with the trial's parameters; all 0: the schedule does not admit these parameters. */
typedef struct TrialSizes {
    uint32_t ranks, stages, microbatches;
} TrialSizes;
TrialSizes trial_sizes(const Trial *trial, Arena *arena);

/* If there are replicas, checks that the costs give the size of a stage's gradient, which the replicas sum.
   STATUS_BAD_USAGE: they do not. */
Status trial_check_replicas(uint32_t replicas, const Costs *costs, Error *error);

/* Runs the trial and fills in the row; the arena owns its texts. STATUS_OK: the row has figures, or the reason why it
   has none: the schedule does not admit the sizes or parameters, is an order for other sizes, has more stages than the
   model has layers, or makes trial->stages stages with no number of ranks. STATUS_BAD_INPUT: the schedule does not
   compile; the row has diagnostics. STATUS_BAD_USAGE: the schedule has no parameter of a given name. */
Status trial_run(const Trial *trial, Arena *arena, CompareRow *row, Error *error);
