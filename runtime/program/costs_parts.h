#ifndef PROGRAM_COSTS_PARTS_H
#define PROGRAM_COSTS_PARTS_H

/* Computes the times of stages from the times of a model's parts (parts.h). */

#include "runtime/program/costs.h"

/* Whether a part has a time. */
bool costs_have_parts(const Costs *costs);

/* The layers of a stage; if the costs are those of a whole model, of the stage that has the most. */
uint32_t costs_layers(const Costs *costs, uint32_t stages);

/* Sets F, I, W, B and U of each stage to the sum over the parts of the stage. `model_layers` are distributed over
   the stages, or every stage has `layers`; the first and the last stage also have the parts outside the layers.
   Parts without a time take none. FB follows from the recipe, unless `overlap` is given. What is given for a stage,
   or for all stages, stays. `layers` of the result is costs_layers. The arena owns the memory. */
Costs costs_of_parts(const Costs *given, uint32_t stages, const Recipe *recipe, Arena *arena);

#endif
