#ifndef PROGRAM_RECIPE_TIMES_H
#define PROGRAM_RECIPE_TIMES_H

/* The modelled time of an F&B or F&F: two streams, each in its order, through all layers of a stage. The recipe
   reserves `share` of every `whole` multiprocessors for communication, all the time. Computation has the others and
   takes whole / (whole - share) times as long, as matrix products and memory-bound work that fill the device do. If the
   times of computation were measured on Costs.compute_share of the device, they are multiplied by this share, too.
   Communication takes its own time on Costs.multiprocessors or more (20 of 132 for the all-to-all kernels of DeepSeek's
   published profile), and proportionally longer on fewer. */

#include "runtime/program/costs.h"

typedef struct RecipeSpan {
    RecipeEntry entry;
    uint32_t layer; /* of an F counted from the first layer, of a backward from the last */
    double start, end;
} RecipeSpan;

typedef struct RecipeTimes {
    uint32_t layers;
    RecipeLate late;
    RecipeSpan *spans[RECIPE_STREAMS]; /* in the stream's order; owned by the arena */
    uint32_t counts[RECIPE_STREAMS];
    double makespan;
    double busy[RECIPE_STREAMS];
    double in_turn; /* time of all entries one after the other, each with the whole device */
    double hidden;  /* the part of comm's busy time in which compute is busy too */
} RecipeTimes;

/* The number of layers of a stage. */
uint32_t recipe_layers(const Costs *costs);
/* The time of an entry in one layer; 0 if it is not given. */
double recipe_time(const Recipe *recipe, const Costs *costs, RecipeEntry entry);
/* The factor by which entries of a stream take longer in an F&B than their costs. */
double recipe_slowdown(const Recipe *recipe, const Costs *costs, RecipeStream stream, RecipeEntry entry);

/* An entry with the one that it waits for in its layer, and its time, with the share taken into account. */
typedef struct RecipeStep {
    RecipeEntry entry, needed;
    RecipeStream stream;
    bool needs; /* whether it waits for `needed`; false: it waits for the last entry of its pass in the layer before */
    double time;
} RecipeStep;

/* The state of a simulated F&B; all zero at first. */
typedef struct RecipeClock {
    double free[RECIPE_STREAMS];              /* the time from which a stream is free */
    double chain[RECIPE_HALVES];              /* [pass]: the end of all entries of this pass so far */
    double ends[RECIPE_NAMES][RECIPE_HALVES]; /* [component][pass]: the last end of the entry */
} RecipeClock;

/* [component][pass]: of the recipe's entries; others are not set. */
typedef RecipeStep RecipeSteps[RECIPE_NAMES][RECIPE_HALVES];

RecipeStep recipe_step(const Recipe *recipe, const Costs *costs, RecipeEntry entry);
void recipe_steps(const Recipe *recipe, const Costs *costs, RecipeSteps steps);
/* Runs the next entry as soon as its stream is free and what it needs has ended. Steps come layer by layer, in an
   order in which they can be issued. Returns the start; the end is clock->free[step->stream]. */
double recipe_advance(RecipeClock *clock, const RecipeStep *step);
/* Simulates a whole F&B. The arena owns the spans. */
RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena);
/* Converts to another unit; `factor` new units are one old unit. */
void recipe_times_scale(RecipeTimes *times, double factor);

#endif
