#pragma once

/* Costs as a schedule needs them: every stage has a time for every pass. What was not given for a stage is
   derived from what was given:

     F, I, W, U    from the times of the stage's parts, if there are any (costs_parts.h); FB then from the recipe
     I, W          if B is given for the stage or for all stages: B minus the other half, if that half is given; else B
                   divided in the ratio of I to W of the stages that have both; else half of B each. An I or a W that
                   is given for all stages counts only for a stage without a B of its own
     B             I + W
     FB            `overlap` times (F + B)

   If none of this is given, the stage has the default. If the costs are for another number of stages (`stages = N`), a
   stage of the schedule has its share of the times and the memory of the stages whose layers it takes; the size of
   messages does not change. */

#include "program/times/costs.h"

#include <stdio.h>

/* The costs for a schedule with this many stages. `recipes`: those of its F&Bs or F&Fs; NULL: none. FB and FF follow
   from the times of parts only with a recipe. `derived` of the result lists the derived costs. The arena owns the
   memory of the result, which refers to that of `given` and to `recipes`. */
Costs costs_resolve(const Costs *given, uint32_t stages, const Recipes *recipes, Arena *arena);

/* Which costs are in `derived`, as bits 1 << StageCost. */
uint32_t costs_derived(const Costs *costs);
/* Prints the derived costs among the `used` ones (bits 1 << StageCost). Each line begins with `prefix` and has one
   cost; I and W of the same stages share a line if they follow from the same rule. */
void costs_put_derived(const Costs *costs, uint32_t used, const char *prefix, FILE *stream);
/* Whether costs_put_derived prints any line. */
bool costs_has_derived(const Costs *costs, uint32_t used);
/* Prints the derived costs that costs_put_derived prints, as a JSON array: [{"cost": "I", "stages": [0, 1], "values":
   [1.5, 2], "rule": "half of B, ..."}]. If the costs were given for another number of stages, costs_put_derived prints
   one more line, and this function one more entry: {"cost": "all", "rule": "..."}. */
void costs_put_derived_json(const Costs *costs, uint32_t used, FILE *stream);

/* Whether some costs do not fit the schedule, which is often a mistake: a cost is given for a stage or a link that does
   not exist; an I or W for all stages has no effect; or the model has fewer layers than the schedule has stages. Then
   `text` says what does not fit. */
bool costs_unused(const Costs *given, uint32_t stages, uint32_t ranks, char *text, size_t size);
