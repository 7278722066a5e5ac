#pragma once

#include "compiler/schedule/schedule.h"
#include "compiler/search/search_recipe.h"
#include "compiler/source/diag.h"
#include "compiler/tree/ast.h"

/* `overlap F&B auto`: fills in the recipe of a schedule for which place() has left it empty. The order is the shortest
   that recipe_shortest finds under these costs for the stage with the most layers. False: the costs have no component
   with a time above 0; a diagnostic says so. */
bool recipe_auto(const Item *item, const Costs *costs, Diagnostics *diagnostics, Schedule *schedule,
                 RecipeFound *found);
