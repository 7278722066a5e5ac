#pragma once

/* The question "is there an order that takes at most so many ticks?" as clauses for a SAT solver.

   The start and the end of a job have one variable per tick, which is true if the job starts or ends at that tick or
   earlier (the order encoding; Tamura et al., Compiling finite linear CSP into SAT, 2009). Two jobs of a rank run one
   after the other, or are an F&B or F&I. For each backward that may be a B, a variable says whether it is one; if so,
   its W takes no time. Counters check the memory limits at every F, because only an F takes memory.

   The F of a chunk run the microbatches in ascending order. So do its backwards, and those of its W that are not part
   of a B. This excludes no makespan: the microbatches of a chunk are interchangeable, so they can be renumbered. (If
   the rank of a stage depends on the microbatch, they are not, and may run in any order.) */

#include "compiler/search/optimum_clauses.h"
#include "compiler/search/optimum_jobs.h"

typedef struct OptimumModel {
    Jobs jobs;
    Clauses clauses;
    Ladder *start, *end; /* [jobs] */
    Ladder time;         /* time of the whole order */
    int *whole, *paired; /* [jobs]: literals "this backward is a B", "this job is half of an F&B or F&I" */
    int *pair;           /* [pairs]: literal */
    int **before;        /* [rank][a * jobs of the rank + b]: literal "a ends before b starts" */
} OptimumModel;

/* The index of the job in model->jobs.jobs. */
static inline uint32_t number_of(const OptimumModel *model, const Job *job)
{
    return (uint32_t)(job - model->jobs.jobs);
}

/* Gives the solver the clauses of the orders that take least..most ticks. A tick is `tick` units of the costs. */
OptimumModel *optimum_model_new(const OptimumTask *task, double tick, int least, int most, Solver *solver,
                                Arena *arena);
/* The literal "the order takes at most so many ticks", for least <= ticks <= most. */
int optimum_model_within(const OptimumModel *model, int ticks);
/* After ANSWER_YES: writes the solver's order as actions. The arena owns them. */
void optimum_model_orders(const OptimumModel *model, Span span, Arena *arena, Order *orders);
