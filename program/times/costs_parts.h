#pragma once

/* Computes the times of stages from the times of a model's parts (parts.h). */

#include "program/times/costs.h"

/* Whether a time is given for any part. */
bool costs_have_parts(const Costs *costs);
/* Whether the times of stages are sums over the parts of a whole model: model_layers and the time of a part are given.
   Without the time of any part, model_layers has no effect on times. */
bool costs_of_whole_model(const Costs *costs);

/* Checks costs after all of them were read. STATUS_BAD_USAGE: the time of a part of a component is given (qkv.F), but
   not that of its component (attention.F). */
Status costs_check_parts(const Costs *costs, Error *error);

/* The number of layers of a stage; with the costs of a whole model, of the stage that has the most. */
uint32_t costs_layers(const Costs *costs, uint32_t stages);
/* The first layer of stage number `stage`, and the number of its layers. */
uint32_t costs_stage_first_layer(const Costs *costs, uint32_t stages, uint32_t stage);
uint32_t costs_stage_layers(const Costs *costs, uint32_t stages, uint32_t stage);

/* The time that a pass of a stage takes in parts that the recipe does not order: parts outside the layers, and
   components of layers that it does not name. In the B of stage 0, first_layer.B replaces the B of an ordinary layer;
   so the result may be negative. */
double costs_outside_recipe(const Costs *costs, const Recipe *recipe, uint32_t stages, uint32_t stage, RecipePass pass);

/* The time of the W that comes after an F&B of the stage, if its recipe puts off the weight gradients of these
   components (bits 1 << ModelPart): a share of the stage's W, in proportion to the times of the components. FB is the
   time of the F&B without that W. 0 if FB or the times of components are not given: then nothing says how much shorter
   the F&B is. */
double costs_put_off(const Costs *costs, uint32_t stages, uint32_t stage, uint32_t components);
/* costs_put_off of the components that the recipe puts off, in the stage in which it is longest. */
double costs_longest_put_off(const Costs *costs, uint32_t stages, const Recipe *recipe);

/* Sets F, I, W and U of each stage to the sum over the parts of the stage, and B to I + W if none of B, I and W is
   given. `model_layers` are distributed over the stages, or every stage has `layers`; the first and the last stage also
   have the parts outside the layers. Parts without a time take none. With a recipe, FB (FF if it is the recipe of an
   F&F) follows from the recipe, unless `overlap` is given. A cost that is given for a stage, or for all stages, is
   kept, with one exception: with `model_layers` and `model_stages`, `gradients` for all stages is converted from
   `model_stages` stages to `stages`. `layers` of the result is costs_layers. `follows_recipe` is set if FB or FF of all
   stages follow from the recipe. The arena owns the memory. */
Costs costs_of_parts(const Costs *given, uint32_t stages, const Recipe *recipe, Arena *arena);
