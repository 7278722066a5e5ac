#ifndef PROGRAM_RECIPE_TIMES_H
#define PROGRAM_RECIPE_TIMES_H

/* What the inside of an F&B is taken to cost: two streams, each in its order, through all layers of a stage. */

#include "runtime/program/costs.h"

typedef struct RecipeSpan {
    RecipeEntry entry;
    uint32_t layer; /* as the F counts; the backward is in the last but so many */
    double start, end;
} RecipeSpan;

typedef struct RecipeTimes {
    uint32_t layers;
    RecipeSpan *spans[RECIPE_STREAMS]; /* in the stream's order, the arena's */
    uint32_t counts[RECIPE_STREAMS];
    double makespan;
    double busy[RECIPE_STREAMS];
    double hidden;                     /* of comm's busy time: while compute is busy */
} RecipeTimes;

/* Layers of a stage. */
uint32_t recipe_layers(const Costs *costs);
/* Time of an entry, in one layer; 0 where none is given. */
double recipe_time(const Costs *costs, RecipeEntry entry);
RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena);

#endif
