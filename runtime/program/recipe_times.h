#ifndef PROGRAM_RECIPE_TIMES_H
#define PROGRAM_RECIPE_TIMES_H

/* The modelled time of an F&B or F&F: two streams, each in its order, through all layers of a stage. The
   multiprocessors that the recipe keeps for communication, `share` of `whole`, are kept throughout: computation has the
   others and takes whole / (whole - share) of its time, as matrix products and memory-bound work that fill the device
   do. If its time was measured on Costs.compute_share of the device, it takes that share of this time. Communication
   takes its own time on Costs.multiprocessors or more (20 of 132 for the all-to-all kernels of DeepSeek's published
   profile), and inversely longer on fewer. */

#include "runtime/program/costs.h"

typedef struct RecipeSpan {
    RecipeEntry entry;
    uint32_t layer; /* the layer of an F, counted from the first; the layer of a backward, counted from the last */
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
    double chain[RECIPE_HALVES];              /* the end of all F so far, and of all B */
    double ends[RECIPE_NAMES][RECIPE_HALVES]; /* of the entries of this layer */
} RecipeClock;

RecipeStep recipe_step(const Recipe *recipe, const Costs *costs, RecipeEntry entry);
/* Runs the next entry as soon as its stream is free and what it needs has ended. Steps come layer by layer, in an
   order in which they can be issued. Returns the start; the end is clock->free[step->stream]. */
double recipe_advance(RecipeClock *clock, const RecipeStep *step);
/* Simulates a whole F&B. The arena owns the spans. */
RecipeTimes recipe_times(const Recipe *recipe, const Costs *costs, Arena *arena);
/* Converts to another unit; `factor` new units are one old unit. */
void recipe_times_scale(RecipeTimes *times, double factor);

#endif
