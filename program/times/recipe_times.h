#pragma once

/* The modelled time of an F&B or F&F: two streams, each in its order, through all layers of a stage. Without a share in
   the recipe, every entry takes the time that its cost says. With a share, `share` of every `whole` multiprocessors are
   reserved for communication, during the whole F&B or F&F. Computation has the others and takes whole / (whole - share)
   times as long. This holds for matrix products and for memory-bound work if they fill the device. If the times of
   computation were measured on Costs.compute_share of the device, they are multiplied by this share, too. Communication
   takes the time that its cost says on Costs.multiprocessors or more (20 of 132 for the all-to-all kernels of
   DeepSeek's published profile), and proportionally longer on fewer. */

#include "program/times/costs.h"

typedef struct RecipeSpan {
    RecipeEntry entry;
    uint32_t layer; /* counted from 0 at the first layer of the stage in an F, at the last layer in a backward */
    double start, end;
} RecipeSpan;

typedef struct RecipeTimes {
    uint32_t layers;
    RecipeLate late;
    RecipeSpan *spans[RECIPE_STREAMS]; /* [stream][counts[stream]], in the order of the stream; owned by the arena */
    uint32_t counts[RECIPE_STREAMS];
    double makespan;
    double busy[RECIPE_STREAMS];
    double in_turn; /* total time of all entries if they ran one after the other, each in the time that its cost says */
    double hidden;  /* the part of comm's busy time in which compute is busy too */
} RecipeTimes;

/* The number of layers of a stage. */
uint32_t recipe_layers(const Costs *costs);
/* The time of an entry in the given stream of an F&B or F&F, divided by the time that its cost says; 1 if the recipe
   has no share. It may be below 1, because compute_share multiplies it. */
double recipe_slowdown(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry);

/* An entry, the entry of the same layer that it needs, and the time that it takes on its stream's share of the
   multiprocessors. */
typedef struct RecipeStep {
    RecipeEntry entry, needed;
    RecipeStream stream;
    bool needs; /* true: the entry needs `needed`; false: it needs all entries of its pass in the layers before */
    double time;
} RecipeStep;

/* The state of a simulated F&B or F&F; all zero at first. */
typedef struct RecipeClock {
    double free[RECIPE_STREAMS]; /* the time from which a stream is free */
    double chain[RECIPE_HALVES]; /* [pass]: the latest end of any entry of this pass so far */
    /* [component][pass]: when the entry ended in the latest layer that has run it */
    double ends[RECIPE_NAMES][RECIPE_HALVES];
} RecipeClock;

/* [component][pass]; only those of the recipe's entries are set. */
typedef RecipeStep RecipeSteps[RECIPE_NAMES][RECIPE_HALVES];

RecipeStep recipe_step(const Recipe *recipe, const Costs *costs, RecipeEntry entry);
void recipe_steps(const Recipe *recipe, const Costs *costs, RecipeSteps steps);
/* Runs the step of the next entry as soon as its stream is free and what it needs has ended. Steps come layer by layer,
   in an order in which they can be issued. Returns the start; the end is clock->free[step->stream]. */
double recipe_advance(RecipeClock *clock, const RecipeStep *step);
/* Simulates a whole F&B or F&F: all layers of a stage. The arena owns the spans. */
RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena);
/* Converts all times to another unit: multiplies them by `factor`. */
void recipe_times_scale(RecipeTimes *times, double factor);
