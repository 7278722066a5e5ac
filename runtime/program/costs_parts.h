#ifndef PROGRAM_COSTS_PARTS_H
#define PROGRAM_COSTS_PARTS_H

/* From the times of a model's parts (parts.h) to those of its stages. */

#include "runtime/program/costs.h"

/* Whether there is a time of a part. */
bool costs_have_parts(const Costs *costs);

/* Layers of a stage; where the costs are of a whole model, of that stage of so many which has the most. */
uint32_t costs_layers(const Costs *costs, uint32_t stages);

/* Sets F, I, W, B and U of each of so many stages to the sum over the parts of the stage: `model_layers` are dealt to
   the stages, or every stage has `layers`; the first and the last stage have the parts outside the layers as well.
   Parts without a time take none. FB follows from the recipe, unless `overlap` is given. What is given for a stage, or
   for all stages, stays. `layers` of the result is costs_layers. The memory is the arena's. */
Costs costs_of_parts(const Costs *given, uint32_t stages, const Recipe *recipe, Arena *arena);

#endif
