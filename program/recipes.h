#pragma once

/* The recipes of a program, and which of them an F&B or F&F follows: `overlap F0&B1 { ... }` is the recipe of the F&Bs
   whose F is of chunk 0 and whose B is of chunk 1. `overlap F&B { ... }` is the recipe of all other F&Bs. */

#include "program/recipe.h"

enum { RECIPES_MAX = 256 }; /* most ChunkRecipes of a program */

typedef struct ChunkRecipe {
    uint8_t first, second; /* the chunks of the two halves, as their rank numbers them */
    Recipe recipe;
} ChunkRecipe;

/* All recipes are those of F&Bs, or all are those of F&Fs. */
typedef struct Recipes {
    Recipe *common;   /* the recipe of all F&Bs (or F&Fs) whose chunks have none in `own`; NULL: not given */
    ChunkRecipe *own; /* [count]: recipes for certain chunks, at most one for the same two chunks */
    uint32_t count;
} Recipes;

/* Whether there is any recipe. */
bool recipes_any(const Recipes *recipes);
/* Whether the recipes are those of F&Fs; false if there are none. */
bool recipes_are_forward(const Recipes *recipes);
/* Whether any recipe puts weight gradients off. */
bool recipes_put_off(const Recipes *recipes);
/* The index in `own` of the recipe of an F&B or F&F of these chunks; `count`: `own` has none for them. */
uint32_t recipes_find(const Recipes *recipes, uint32_t first, uint32_t second);
/* The components whose weight gradients the recipe of an F&B of these chunks puts off, as bits 1 << ModelPart; 0: none,
   or there is no recipe. */
uint16_t recipes_pair_put_off(const Recipes *recipes, uint32_t first, uint32_t second);
/* The recipe that an F&B or F&F of these chunks follows: its own, otherwise the common one; NULL if neither is
   given. */
const Recipe *recipes_of_pair(const Recipes *recipes, uint32_t first, uint32_t second);
/* Writes which F&Bs follow recipe `index`: "F0&B1"; "F&B" for the common recipe (index `count`). If the recipes are
   those of F&Fs: "F0&F1" and "F&F". */
void recipes_pair_text(const Recipes *recipes, uint32_t index, char *text, size_t size);
