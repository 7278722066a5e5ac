#ifndef PROGRAM_RECIPE_WAITS_H
#define PROGRAM_RECIPE_WAITS_H

/* Where compute waits inside an F&B, and for what: in a predicted F&B or in a measured one. */

#include "runtime/program/recipe_times.h"

typedef struct RecipeWait {
    RecipeSpan waiting; /* the entry of compute that begins after the wait */
    double time;        /* since compute was free */
    bool on_entry;      /* the wait ended when the needed entry had ended; false: something else delayed it, such as
                           its launch */
    RecipeEntry needed;
    uint32_t needed_layer;
} RecipeWait;

/* The waits longer than `least`, in order; [returned], owned by the arena. */
uint32_t recipe_waits(const Recipe *recipe, const RecipeTimes *times, double least, RecipeWait **waits, Arena *arena);

#endif
