#ifndef COMMAND_TRIAL_H
#define COMMAND_TRIAL_H

/* Tries one schedule with given sizes, parameters, costs and memory. The result is the figures of a row of a table,
   or the reason why there are none. All state is in the arguments, so several trials may run at once, each with an
   arena of its own. */

#include "compiler/command/published.h"
#include "compiler/lower/gap.h"
#include "compiler/schedule/gradient_sums.h"
#include "compiler/search/search.h"
#include "compiler/tree/values.h"

typedef struct Trial {
    const Source *source;
    Parameters parameters; /* ranks and microbatches, if known; the schedule must have each of the others */
    /* further -D, each used only if the schedule declares the parameter; no sizes; NULL: none */
    const Parameters *optional;
    uint32_t stages; /* > 0: use the least number of ranks that cuts the model into this many stages */
    uint32_t parts;  /* the given times and bytes are for 1/parts of the model; 0: for one stage of this schedule */
    const Costs *costs;
    /* replicas of the pipeline that sum their gradients; 0: sums of gradients are not counted */
    uint32_t replicas;
    const Memory *memory;        /* sizes of slots, and memory limits; a row may exceed the limits (CompareRow.fits) */
    const SearchControl *search; /* of `order auto`; NULL: search to the end */
} Trial;

typedef struct CompareRow {
    const char *path, *name;     /* name: of the schedule; the path if the name is unknown */
    const Parameter *parameters; /* the -D that the schedule has, each once */
    uint32_t parameter_count;
    const char *reason;      /* why the row has no figures; NULL: it has figures */
    const char *diagnostics; /* printed diagnostics of a schedule that does not compile; NULL: it compiles, or
                                refuses the sizes or parameters */
    uint32_t ranks, stages, microbatches;
    double makespan;
    GradientSums sums; /* sums of gradients over the replicas; the makespan includes sums.added */
    /* gap of the makespan without the sums. Its lower bound is over orders within the memory limits; without limits, or
       if the row exceeds them, over orders that hold no more than the row's own orders */
    Gap gap;
    Bubble bubble;
    BubbleCauses causes;
    uint32_t peak;     /* the most activations that any rank holds, in activations of one stage and microbatch */
    double copies;     /* how often the weights of the model exist on all ranks together; each version counts */
    uint64_t messages; /* of all ranks */
    double bytes;      /* bytes of these messages; 0: the costs do not give the size of a message */
    double memory;     /* bytes of the rank that holds most, at its peak; 0: neither costs nor slots have sizes */
    bool fits;         /* within the limits of memory, if there are any */
    uint32_t derived;  /* derived costs that the schedule uses, as bits 1 << StageCost */
    bool asynchronous; /* it updates weights within the step */
    bool forward_only; /* it has no backward passes */
    bool is_order;     /* a .csv */
    bool searched;     /* `order auto` or `overlap F&B auto`: the program depends on the costs */
    bool has_published;
    PublishedBubble published;
} CompareRow;

/* The number of stages that the costs are for. The first of these rules that applies decides:
   - the costs name the number (Costs.model_stages);
   - the costs name single stages: the number is the highest stage named + 1, and `*assumed` becomes true. This rule
     does not apply if one of these costs was given for all stages too and all named stages are below `parts`;
   - otherwise the number is `parts`. */
uint32_t trial_costs_stages(const Costs *costs, uint32_t parts, bool *assumed);

/* The sizes of the schedule under the trial's parameters; all 0: the schedule does not admit these parameters. */
typedef struct TrialSizes {
    uint32_t ranks, stages, microbatches;
} TrialSizes;
TrialSizes trial_sizes(const Trial *trial, Arena *arena);

/* Replicas sum gradients, so the costs must have the size of a stage's gradient. STATUS_BAD_USAGE: they do not. */
Status trial_check_replicas(uint32_t replicas, const Costs *costs, Error *error);

/* Fills in the row; the arena owns its texts. If the schedule does not admit the sizes, or is an order for other sizes,
   the result is STATUS_OK and the row has a reason. STATUS_BAD_INPUT: the schedule does not compile, and the row has
   diagnostics. STATUS_BAD_USAGE: the schedule has no parameter of a given name. */
Status trial_run(const Trial *trial, Arena *arena, CompareRow *row, Error *error);

#endif
