#ifndef COMMAND_TRIAL_H
#define COMMAND_TRIAL_H

/* One schedule, tried with given sizes, parameters, costs and memory: the figures of a row of a table, or the reason
   why there are none. No state is kept outside of the arguments: several trials may run at once, each with an arena of
   its own. */

#include "compiler/command/published.h"
#include "compiler/lower/memory.h"
#include "compiler/search/search.h"
#include "compiler/tree/values.h"

typedef struct Trial {
    const Source *source;
    Parameters parameters; /* ranks and microbatches, where they are known; each other one the schedule must have */
    const Parameters *optional; /* of these the schedule takes those that it has, but no sizes; NULL: none */
    uint32_t stages;            /* > 0: with the least number of ranks that cuts the model into so many stages */
    uint32_t parts; /* times and bytes are given for 1/parts of the model; 0: for a stage of this schedule */
    const Costs *costs;
    const Memory *memory;        /* sizes of slots, and limits, which a row may exceed */
    const SearchControl *search; /* of `order auto`; NULL: to its end */
} Trial;

typedef struct CompareRow {
    const char *path, *name;     /* name: of the schedule, or again the path where it is not known */
    const Parameter *parameters; /* -D that it took, each once */
    uint32_t parameter_count;
    const char *reason;      /* why it has no figures; NULL: it has */
    const char *diagnostics; /* of a schedule that does not compile, as they are printed; NULL: it compiles, or refuses
                                the sizes or parameters */
    uint32_t ranks, stages, microbatches;
    double makespan;
    Bubble bubble;
    BubbleCauses causes;
    uint32_t peak;     /* most activations of a stage on a rank */
    double copies;     /* of the weights, and versions of them */
    uint64_t messages; /* of all ranks */
    double bytes;      /* of these; 0: the costs have none */
    double memory;     /* peak of a rank; 0: neither costs nor sizes of slots have any */
    bool fits;         /* within the limits of memory, if there are any */
    uint32_t derived;  /* costs that it uses and that were derived, as bits 1 << StageCost */
    bool asynchronous; /* it updates weights within the step */
    bool is_order;     /* a .csv */
    bool searched;     /* `order auto` or `overlap F&B auto`: the program depends on the costs */
    bool has_published;
    PublishedBubble published;
} CompareRow;

/* The number of stages that costs are of, where those for all stages are given for 1/parts of the model. Costs may say
   that themselves (Costs.model_stages). Else those of single stages are of as many stages as they name, the highest +
   1, and `*assumed` is true; but beside a cost for all stages of the same kind they are exceptions to it, and of
   1/parts, too, if they name no more stages. */
uint32_t trial_costs_stages(const Costs *costs, uint32_t parts, bool *assumed);

/* The sizes that the schedule has under the trial's parameters; all 0: it cannot take these. */
typedef struct TrialSizes {
    uint32_t ranks, stages, microbatches;
} TrialSizes;
TrialSizes trial_sizes(const Trial *trial, Arena *arena);

/* Fills in the row; its texts are the arena's. A schedule that cannot take the sizes, or is an order for other ones, is
   STATUS_OK and has a reason; STATUS_BAD_INPUT: it does not compile, with diagnostics; STATUS_BAD_USAGE: it has no such
   parameter. */
Status trial_run(const Trial *trial, Arena *arena, CompareRow *row, Error *error);

#endif
