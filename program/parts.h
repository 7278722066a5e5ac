#pragma once

/* The one table of the parts of models. Recipes of an F&B name the parts of a layer, the built-in models compute the
   parts, dprun --profile measures them, and the costs of a stage are sums over them. */

#include <stddef.h>
#include <stdint.h>

/* The role of a part. The order matters: the parts of a layer come first, and only they may be in a recipe. */
typedef enum PartRole {
    PART_COMPUTES,     /* a component of a layer */
    PART_COMMUNICATES, /* a component of a layer that moves tokens to their experts or back; it has no weights */
    PART_INSIDE, /* a part of a component: qkv and core of attention, shared experts of mlp. Only an F&F may name it */
    PART_BEGINS, /* the first component of a model: turns data into activations */
    PART_COSTS,  /* not a component, only a cost of the first stage */
    PART_ENDS,   /* the last component of a model: computes the loss */
} PartRole;

/* PART(number, name, role, passes that take time). The components of a layer are in the order of its forward. dispatch
   and combine are the all-to-alls before and after the experts. qkv and core are the two parts of attention: qkv is
   what comes before the attention core, and core is the rest, with the output projection and the router. shared has the
   shared experts of mlp. The times of these parts are included in those of attention and mlp. perceptron is a whole
   layer of the model `mlp`. first_layer is layer 0 of a model without parameters before that layer (the model `mlp`):
   the gradient of its input is not needed, so its input half of a backward is shorter than that of other layers. */
/* clang-format off */
#define MODEL_PART_LIST                                               \
    PART(RECIPE_ATTENTION, "attention", PART_COMPUTES, FBWU)          \
    PART(RECIPE_DISPATCH, "dispatch", PART_COMMUNICATES, FB)          \
    PART(RECIPE_MLP, "mlp", PART_COMPUTES, FBWU)                      \
    PART(RECIPE_COMBINE, "combine", PART_COMMUNICATES, FB)            \
    PART(RECIPE_PERCEPTRON, "perceptron", PART_COMPUTES, FBWU)        \
    PART(RECIPE_QKV, "qkv", PART_INSIDE, F)                           \
    PART(RECIPE_CORE, "core", PART_INSIDE, NONE)                      \
    PART(RECIPE_SHARED, "shared", PART_INSIDE, F)                     \
    PART(PART_EMBEDDING, "embedding", PART_BEGINS, FWU)               \
    PART(PART_ROWS, "rows", PART_BEGINS, F)                           \
    PART(PART_FIRST_LAYER, "first_layer", PART_COSTS, B)              \
    PART(PART_HEAD, "head", PART_ENDS, FBWU)                          \
    PART(PART_SQUARED_ERROR, "squared_error", PART_ENDS, FB)

#define PART(number, name, role, passes) + ((role) <= PART_COMMUNICATES)
enum { LAYER_PARTS = 0 MODEL_PART_LIST };
#undef PART
#define PART(number, name, role, passes) + ((role) <= PART_INSIDE)
enum { NAMED_PARTS = 0 MODEL_PART_LIST }; /* what an F&F may name: components, and parts of components */
#undef PART

#define PART(number, name, role, passes) number,
typedef enum ModelPart {
    MODEL_PART_LIST MODEL_PARTS,
    RECIPE_COMPONENTS = LAYER_PARTS,
    RECIPE_NAMES = NAMED_PARTS
} ModelPart;
#undef PART
/* clang-format on */

/* The passes of a part. B is the input half of a backward, W its weight half. An entry of an F&B's recipe has one of F,
   B and W. PART_U, which no recipe has, is the update of the part's weights. */
typedef enum RecipePass { RECIPE_F, RECIPE_B, RECIPE_W, RECIPE_PASSES } RecipePass;
enum { PART_U = RECIPE_PASSES, PART_PASSES };
/* The halves of an F&F, each the F of one microbatch. Entries of its recipe have them in place of a pass. */
enum { RECIPE_FIRST = PART_PASSES, RECIPE_SECOND, RECIPE_HALVES };

enum { NO_LAYER = UINT32_MAX }; /* the layer of a component outside the layers */

extern const char *const part_names[MODEL_PARTS];
extern const PartRole part_roles[MODEL_PARTS];
extern const char part_pass_letters[RECIPE_HALVES];

/* The part whose name is the first `length` bytes of `name`; MODEL_PARTS: there is none. Only parts below RECIPE_NAMES
   may be in a recipe. */
ModelPart part_named(const char *name, size_t length);

/* The first layer of stage `stage`; for stage == stages, the number of layers. Each stage gets layers / stages layers,
   and each of the first layers % stages stages one more. */
static inline uint32_t stage_first_layer(uint32_t layers, uint32_t stages, uint32_t stage)
{
    const uint32_t each = layers / stages, more = layers % stages;
    return stage * each + (stage < more ? stage : more);
}
