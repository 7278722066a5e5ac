#ifndef PROGRAM_RECIPE_TIMES_H
#define PROGRAM_RECIPE_TIMES_H

/* What the inside of an F&B is taken to cost: two streams, each in its order, through all layers of a stage. What the
   recipe keeps for communication, `share` of the multiprocessors' `whole`, is kept throughout: what computes has the
   others alone and takes whole / (whole - share) of its time, as matrix products and memory-bound work do that fill the
   device. Where its time was measured on Costs.compute_share of the device, it takes that share of this. Communication
   takes its time from Costs.multiprocessors on, which are enough (20 of 132 for the all-to-all kernels of DeepSeek's
   published profile), and on fewer inversely longer. */

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
/* How much longer entries of a stream take in an F&B than their costs say. */
double recipe_slowdown(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry);

/* An entry with what it waits for in its layer and what it takes, share included. */
typedef struct RecipeStep {
    RecipeEntry entry, needed;
    RecipeStream stream;
    bool needs; /* false: nothing in its layer, but the last of its pass in the layer before */
    double time;
} RecipeStep;

/* The state of a simulated F&B; all zero at its begin. */
typedef struct RecipeClock {
    double free[RECIPE_STREAMS];                   /* since when a stream is free */
    double chain[RECIPE_PASSES];                   /* the end of the last F, and of the last B */
    double ends[RECIPE_COMPONENTS][RECIPE_PASSES]; /* of the entries of this layer */
} RecipeClock;

RecipeStep recipe_step(const Recipe *recipe, const Costs *costs, RecipeEntry entry);
/* Runs the next entry as soon as its stream is free and what it needs has ended. Steps come layer by layer, in an order
   in which they can be issued. Returns the start; the end is in clock->free[step->stream]. */
double recipe_advance(RecipeClock *clock, const RecipeStep *step);
/* A whole F&B. The spans are the arena's. */
RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena);
/* The same in another unit, `factor` of which are one of the old. */
void recipe_times_scale(RecipeTimes *times, double factor);

#endif
