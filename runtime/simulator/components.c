#include "runtime/simulator/components.h"

#include "program/times/costs_parts.h"

#include <math.h>

enum { OUTSIDE = MODEL_PARTS - RECIPE_NAMES }; /* number of parts that may be outside the layers */

PassRange pass_range(StageCost cost)
{
    return (PassRange){.first = cost == COST_F   ? RECIPE_F
                                : cost == COST_W ? RECIPE_W
                                                 : RECIPE_B,
                       .last = cost == COST_F   ? RECIPE_F
                               : cost == COST_I ? RECIPE_B
                                                : RECIPE_W};
}

void components_note(const Simulator *simulator, uint8_t half, PartSpan span)
{
    if (!simulator->components)
        return;
    simulator->components->half = half;
    part_spans_note(simulator->components, &span);
}

/* --- the order of the components in a pass --- */

/* A walk over the components that have a cost in one pass. At the beginning `place` is 0. */
typedef struct PassWalk {
    const Simulator *simulator;
    uint32_t stage;
    RecipePass pass;
    uint32_t place; /* how many positions of the walk (component_at) have been passed */
} PassWalk;

typedef struct Component {
    uint32_t layer; /* of the whole model; NO_LAYER: outside the layers */
    ModelPart part; /* MODEL_PARTS: the stage has no component here */
    double time;    /* in units of the costs */
} Component;

/* The part RECIPE_NAMES + `number`, if it is one of the stage's parts before the layers (`first`) or after them;
   otherwise MODEL_PARTS. */
static ModelPart part_outside(const PassWalk *walk, uint32_t number, bool first)
{
    const ModelPart part = (ModelPart)(RECIPE_NAMES + number);
    const bool has_it = first ? walk->stage == 0 : walk->stage + 1 == walk->simulator->stages;
    return has_it && part_roles[part] == (first ? PART_BEGINS : PART_ENDS) ? part : MODEL_PARTS;
}

/* A component of a layer. If the I of the first layer has a cost of its own, that I is one part (PART_FIRST_LAYER), in
   place of the layer's first component; the layer then has no others. */
static ModelPart part_inside(const PassWalk *walk, uint32_t layer, uint32_t component)
{
    const bool shorter = walk->pass == RECIPE_B && walk->simulator->costs->parts[PART_FIRST_LAYER][RECIPE_B] >= 0;
    if (!shorter || walk->stage || layer)
        return (ModelPart)component;
    return component ? MODEL_PARTS : PART_FIRST_LAYER;
}

/* The component at index `place` in the order of an F: parts before the layers, components layer by layer, parts after
   the layers. */
static Component component_at(const PassWalk *walk, uint32_t layers, uint32_t place)
{
    const Simulator *simulator = walk->simulator;
    const uint32_t inside = layers * RECIPE_COMPONENTS, number = place - OUTSIDE, layer = number / RECIPE_COMPONENTS;
    Component component = {.layer = NO_LAYER};
    if (place < OUTSIDE) {
        component.part = part_outside(walk, place, true);
    } else if (number >= inside) {
        component.part = part_outside(walk, number - inside, false);
    } else {
        component.layer = costs_stage_first_layer(simulator->costs, simulator->stages, walk->stage) + layer;
        component.part = part_inside(walk, layer, number % RECIPE_COMPONENTS);
    }
    component.time = component.part == MODEL_PARTS ? 0 : simulator->costs->parts[component.part][walk->pass];
    return component;
}

/* Writes the next component that takes time; false: there is none. */
static bool next_component(PassWalk *walk, Component *component)
{
    const uint32_t layers = costs_stage_layers(walk->simulator->costs, walk->simulator->stages, walk->stage);
    const uint32_t places = layers * RECIPE_COMPONENTS + 2 * OUTSIDE;
    while (walk->place < places) {
        const uint32_t place = walk->place++;
        *component = component_at(walk, layers, walk->pass == RECIPE_F ? place : places - 1 - place);
        if (component->time > 0)
            return true;
    }
    return false;
}

/* --- notes --- */

static double time_of(PassWalk walk)
{
    double sum = 0;
    for (Component component; next_component(&walk, &component);)
        sum += component.time;
    return sum;
}

static int64_t note(PassWalk walk, bool outside, uint8_t half, int64_t begun)
{
    for (Component component; next_component(&walk, &component);) {
        if (outside && component.layer != NO_LAYER)
            continue;
        const int64_t end = begun + (int64_t)(component.time * costs_seconds(walk.simulator->costs) * 1e9);
        components_note(walk.simulator, half,
                        (PartSpan){.layer = component.layer,
                                   .part = (uint8_t)component.part,
                                   .pass = (uint8_t)walk.pass,
                                   .start = begun,
                                   .end = end});
        begun = end;
    }
    return begun;
}

void components_note_pass(const Simulator *simulator, uint32_t stage, StageCost cost, double units, int64_t begun)
{
    const PassRange range = pass_range(cost);
    double sum = 0;
    for (RecipePass pass = range.first; simulator->components && pass <= range.last; pass++)
        sum += time_of((PassWalk){simulator, stage, pass, 0});
    for (RecipePass pass = range.first; fabs(sum - units) <= 1e-9 * units && pass <= range.last; pass++)
        begun = note((PassWalk){simulator, stage, pass, 0}, false, 0, begun);
}

int64_t components_note_outside(const Simulator *simulator, uint32_t stage, StageCost cost, uint8_t half, int64_t begun)
{
    const PassRange range = pass_range(cost);
    for (RecipePass pass = range.first; simulator->components && pass <= range.last; pass++)
        begun = note((PassWalk){simulator, stage, pass, 0}, true, half, begun);
    return begun;
}
