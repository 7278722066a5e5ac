#ifndef PROGRAM_RECIPE_TIMES_H
#define PROGRAM_RECIPE_TIMES_H

/* What the inside of an F&B is taken to cost: two streams, each in its order, through all layers of a stage. What the
   recipe keeps for communication, `share` of the multiprocessors' `whole`, is kept throughout: what computes has the
   others alone and takes whole / (whole - share) of its time, as matrix products and memory-bound work do that fill the
   device. Communication takes its time from Costs.multiprocessors on, which are enough (20 of 132 for the all-to-all
   kernels of DeepSeek's published profile), and on fewer inversely longer. */

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
    double in_turn; /* all of it one after the other, each with the whole device */
    double hidden;  /* of comm's busy time: while compute is busy */
} RecipeTimes;

/* Layers of a stage. */
uint32_t recipe_layers(const Costs *costs);
/* Time of an entry, in one layer; 0 where none is given. */
double recipe_time(const Costs *costs, RecipeEntry entry);
/* How much longer entries of a stream take in an F&B: at least 1. */
double recipe_slowdown(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry);
RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena);

#endif
