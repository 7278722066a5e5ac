#pragma once

/* What compare, advise and fit are asked for: the files, and the sizes, costs and limits of all trials. */

#include "compiler/lower/memory.h"
#include "compiler/tree/values.h"

typedef struct TrialSettings {
    char *const *inputs; /* [input_count] */
    int input_count;
    const Parameters *own; /* compare, advise: [input_count + 1], the -D given for each input alone */
    const char *sort;      /* compare: the column to sort by; NULL: makespan */
    /* compare: number of stages of every schedule; 0: they have the same number of ranks instead */
    int64_t stages;
    int64_t replicas; /* compare, advise: replicas of the pipeline that sum gradients; 0: sums are not counted */
    bool allow_async, allow_naive; /* advise */
    int64_t seconds;               /* advise: limit for all trials together */
    const char *program;           /* advise: argv[0], for the commands that it advises */
    Parameters parameters;
    Costs costs;
    const char **cost_texts; /* [cost_count]: each --cost as the user wrote it */
    int cost_count;
    Memory memory;
} TrialSettings;
