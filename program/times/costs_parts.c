#include "program/times/costs_parts.h"

#include "program/times/recipe_times.h"

#include <math.h>
#include <string.h>

bool costs_have_parts(const Costs *costs)
{
    for (int part = 0; part < MODEL_PARTS; part++)
        for (int pass = 0; pass < PART_PASSES; pass++)
            if (costs->parts[part][pass] >= 0)
                return true;
    return false;
}

bool costs_of_whole_model(const Costs *costs) { return costs->model_layers >= 1 && costs_have_parts(costs); }

Status costs_check_parts(const Costs *costs, Error *error)
{
    static const ModelPart inside[][2] = {{RECIPE_QKV, RECIPE_ATTENTION}, {RECIPE_SHARED, RECIPE_MLP}};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        const ModelPart part = inside[i][0], whole = inside[i][1];
        if (costs->parts[part][RECIPE_F] >= 0 && costs->parts[whole][RECIPE_F] < 0)
            return error_set(error, STATUS_BAD_USAGE,
                             "%s: %s.F is a part of the time of %s.F, which is not given: give both",
                             front_name(costs->front_end, SET_COST), part_names[part], part_names[whole]);
    }
    return STATUS_OK;
}

static double part_time(const Costs *costs, int part, int pass) { return fmax(costs->parts[part][pass], 0); }

static double layer_time(const Costs *costs, int pass)
{
    double sum = 0;
    for (int part = 0; part < RECIPE_COMPONENTS; part++)
        sum += part_time(costs, part, pass);
    return sum;
}

uint32_t costs_stage_first_layer(const Costs *costs, uint32_t stages, uint32_t stage)
{
    const uint32_t layers = (uint32_t)costs->model_layers;
    return layers < 1 ? stage * recipe_layers(costs) : stage_first_layer(layers, stages, stage);
}

uint32_t costs_stage_layers(const Costs *costs, uint32_t stages, uint32_t stage)
{
    return costs_stage_first_layer(costs, stages, stage + 1) - costs_stage_first_layer(costs, stages, stage);
}

uint32_t costs_layers(const Costs *costs, uint32_t stages) { return costs_stage_layers(costs, stages, 0); }

/* The time that a pass takes in the parts of a stage outside its layers. */
static double ends_time(const Costs *costs, uint32_t stages, uint32_t stage, int pass)
{
    double sum = 0;
    for (int part = RECIPE_NAMES; part < MODEL_PARTS; part++)
        if (part_roles[part] == PART_ENDS ? stage + 1 == stages : stage == 0)
            sum += part_time(costs, part, pass);
    if (stage == 0 && pass == RECIPE_B && costs->parts[PART_FIRST_LAYER][RECIPE_B] >= 0)
        /* the I of the first layer has a cost of its own, first_layer.B, which replaces that of an ordinary layer */
        sum -= layer_time(costs, pass);
    return sum;
}

static double stage_time(const Costs *costs, uint32_t stages, uint32_t stage, int pass)
{
    return costs_stage_layers(costs, stages, stage) * layer_time(costs, pass) + ends_time(costs, stages, stage, pass);
}

/* Whether the recipe orders a component. In an F&F it may name the parts of attention instead of attention. */
static bool is_ordered(const Recipe *recipe, int part, uint8_t pass)
{
    const uint8_t named = recipe_is_forward(recipe) ? (uint8_t)RECIPE_FIRST : pass;
    return recipe_has(recipe, (ModelPart)part, named) ||
           (part == RECIPE_ATTENTION && recipe_has(recipe, RECIPE_CORE, named));
}

double costs_outside_recipe(const Costs *costs, const Recipe *recipe, uint32_t stages, uint32_t stage, RecipePass pass)
{
    double of_layer = 0;
    for (int part = 0; part < RECIPE_COMPONENTS; part++)
        if (!is_ordered(recipe, part, (uint8_t)pass))
            of_layer += part_time(costs, part, (int)pass);
    return costs_stage_layers(costs, stages, stage) * of_layer + ends_time(costs, stages, stage, (int)pass);
}

double costs_put_off(const Costs *costs, uint32_t stages, uint32_t stage, uint32_t components)
{
    const double all = stage_time(costs, stages, stage, RECIPE_W);
    double of_layer = 0;
    if (all <= 0 || costs_given(costs, stage, COST_FB) < 0)
        return 0;
    for (int part = 0; part < RECIPE_COMPONENTS; part++)
        if (components >> part & 1)
            of_layer += part_time(costs, part, RECIPE_W);
    return costs_pass(costs, stage, COST_W) / all * (costs_stage_layers(costs, stages, stage) * of_layer);
}

double costs_longest_put_off(const Costs *costs, uint32_t stages, const Recipe *recipe)
{
    double longest = 0;
    for (uint32_t s = 0; s < stages; s++)
        longest = fmax(longest, costs_put_off(costs, stages, s, recipe_put_off(recipe)));
    return longest;
}

static double pair_time(const Costs *costs, const Recipe *recipe, uint32_t stages, uint32_t stage, Arena *arena)
{
    Costs own = *costs;
    own.layers = costs_stage_layers(costs, stages, stage);
    double time = recipe_times(recipe, &own, arena).makespan;
    if (recipe_is_forward(recipe))
        return time + 2 * costs_outside_recipe(costs, recipe, stages, stage, RECIPE_F);
    for (RecipePass pass = RECIPE_F; pass < RECIPE_PASSES; pass++)
        time += costs_outside_recipe(costs, recipe, stages, stage, pass);
    return time;
}

/* Fills in the costs of one stage that were not given and follow from its parts. Returns whether FB (in forward-only
   schedules FF) is one of them. */
static bool fill_stage(const Costs *given, const Recipe *recipe, uint32_t stages, uint32_t stage, double *own,
                       Arena *arena)
{
    static const StageCost follows[PART_PASSES] = {
        [RECIPE_F] = COST_F, [RECIPE_B] = COST_I, [RECIPE_W] = COST_W, [PART_U] = COST_U};
    bool open[STAGE_COSTS];
    for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
        open[cost] = own[cost] < 0 && !(given->said & 1u << cost);
    for (int pass = 0; pass < PART_PASSES; pass++)
        if (open[follows[pass]])
            own[follows[pass]] = stage_time(given, stages, stage, pass);
    if (open[COST_B] && open[COST_I] && open[COST_W])
        own[COST_B] = own[COST_I] + own[COST_W];
    const StageCost pair = recipe && recipe_is_forward(recipe) ? COST_FF : COST_FB;
    const bool follows_recipe = open[pair] && recipe && given->overlap < 0;
    if (follows_recipe)
        own[pair] = pair_time(given, recipe, stages, stage, arena);
    return follows_recipe;
}

Costs costs_of_parts(const Costs *given, uint32_t stages, const Recipe *recipe, Arena *arena)
{
    Costs costs = *given;
    costs.layers = costs_layers(given, stages);
    costs.follows_recipe = true;
    costs.put_off = recipe ? recipe_put_off(recipe) : 0;
    costs.stage_count = stages > given->stage_count ? stages : given->stage_count;
    costs.stages = arena_array(arena, costs.stage_count, sizeof *costs.stages);
    for (uint32_t s = 0; s < costs.stage_count; s++) {
        for (StageCost cost = 0; cost < STAGE_COSTS; cost++)
            costs.stages[s][cost] = s < given->stage_count ? given->stages[s][cost] : -1;
        /* `gradients` is given for stages of a model in model_stages stages; here each stage gets its share */
        if (costs.stages[s][COST_GRADIENTS] < 0 && given->model_layers >= 1 && given->model_stages > 0)
            costs.stages[s][COST_GRADIENTS] = given->all[COST_GRADIENTS] * given->model_stages / stages;
        if (s < stages && !fill_stage(given, recipe, stages, s, costs.stages[s], arena))
            costs.follows_recipe = false;
    }
    return costs;
}
