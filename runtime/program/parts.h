#ifndef PROGRAM_PARTS_H
#define PROGRAM_PARTS_H

/* The parts that a model consists of, and how its layers are dealt to stages. The model computes the parts, dprun
   --profile measures them, and the costs of a stage are sums over them: all three use this file. */

#include "runtime/base/recipe.h"

#include <stdint.h>
#include <string.h>

/* The parts of a layer are the components of recipe.h, under the same numbers. The first stage also has the part that
   turns data into activations, the last stage the part that makes the loss. FIRST_LAYER is layer 0 of a model in which
   nothing before that layer learns (mlp): its I is shorter than that of other layers. It stands for that I alone.
   PART(name, text, of the first stage) */
/* clang-format off */
#define END_PART_LIST                        \
    PART(EMBEDDING, "embedding", true)       \
    PART(ROWS, "rows", true)                 \
    PART(FIRST_LAYER, "first_layer", true)   \
    PART(HEAD, "head", false)                \
    PART(SQUARED_ERROR, "squared_error", false)

typedef enum ModelPart {
    PART_LAYER_LAST = RECIPE_COMPONENTS - 1, /* the last part of a layer */
#define PART(name, text, first) PART_##name,
    END_PART_LIST
#undef PART
    MODEL_PARTS
} ModelPart;
/* clang-format on */

/* The passes of a part: those of a recipe, whose B is the input half I of a backward, and the update of its weights. */
enum { PART_F = RECIPE_F, PART_I = RECIPE_B, PART_W = RECIPE_W, PART_U = RECIPE_PASSES, PART_PASSES };

static inline const char *part_name(ModelPart part)
{
    static const char *const ends[] = {
#define PART(name, text, first) [PART_##name - RECIPE_COMPONENTS] = text,
        END_PART_LIST
#undef PART
    };
    return (int)part < (int)RECIPE_COMPONENTS ? recipe_component_names[part] : ends[part - RECIPE_COMPONENTS];
}

/* The part of that name, or MODEL_PARTS. */
static inline ModelPart part_named(const char *name)
{
    int part = 0;
    while (part < MODEL_PARTS && strcmp(part_name((ModelPart)part), name) != 0)
        part++;
    return (ModelPart)part;
}

/* The first layer of stage `stage` of `stages`; of stage number `stages`, the number of layers. Layers are dealt as
   evenly as possible, and the earlier stages get one more. */
static inline uint32_t stage_first_layer(uint32_t layers, uint32_t stages, uint32_t stage)
{
    const uint32_t each = layers / stages, more = layers % stages;
    return stage * each + (stage < more ? stage : more);
}

#endif
