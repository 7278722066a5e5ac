#pragma once

/* Resolves the names of a written recipe, `overlap F&B { ... }` or `overlap F&F { ... }`, and checks the recipe. */

#include "compiler/tree/ast.h"

/* Fills in item->recipe.share and item->recipe.made from the streams, and reports what is wrong. */
void recipe_read(Item *item, Diagnostics *diagnostics);
