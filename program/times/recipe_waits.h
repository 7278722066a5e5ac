#pragma once

/* Where the compute stream waits inside an F&B or F&F, and for which entry. The times may be predicted or measured. */

#include "program/times/recipe_times.h"

typedef struct RecipeWait {
    RecipeSpan waiting; /* the entry of compute that begins after the wait */
    double time;        /* from when compute was free to the start of `waiting` */
    /* true: the entry that `waiting` needs ended after compute was free, so at least a part of the wait was for it;
       false: something else delayed `waiting`, such as its launch, and the two members below are not set */
    bool on_entry;
    RecipeEntry needed;
    uint32_t needed_layer;
} RecipeWait;

/* Finds the waits that are longer than `least`, the earliest first, and returns their number. The arena owns
   *waits. */
uint32_t recipe_waits(const Recipe *recipe, const RecipeTimes *times, double least, RecipeWait **waits, Arena *arena);
