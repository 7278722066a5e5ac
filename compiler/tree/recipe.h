#ifndef TREE_RECIPE_H
#define TREE_RECIPE_H

/* `overlap F&B { ... }` as it is written: its names get their meaning, and it is held against what a recipe must be. */

#include "compiler/tree/ast.h"

/* Fills in item->recipe.share and item->recipe.made from its streams; what is wrong is reported. */
void recipe_read(Item *item, Diagnostics *diagnostics);

#endif
