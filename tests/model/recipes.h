#pragma once

#include "program/recipe.h"

/* The `compute` list of the F&B of schedules/dualpipe.dps. */
// clang-format off
#define DUALPIPE_COMPUTE \
    {{RECIPE_ATTENTION, RECIPE_F}, {RECIPE_MLP, RECIPE_B}, {RECIPE_MLP, RECIPE_W}, \
     {RECIPE_MLP, RECIPE_F}, {RECIPE_ATTENTION, RECIPE_B}, {RECIPE_ATTENTION, RECIPE_W}}
// clang-format on
