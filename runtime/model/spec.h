#pragma once

/* A built-in model and its training data. To add a model: a file with its ModelSpec, and a row in MODEL_LIST. */

#include "base/arena.h"
#include "runtime/model/component.h"

typedef struct DataSource {
    bool is_text; /* reads a file of bytes; the last 10 %, at least sequence + 1 bytes, are held out */
    Status (*open)(Dataset *dataset, const char *path, Error *error);
    /* Writes the inputs and targets of one microbatch. They are random, but depend only on the data set and `key`.
       Either pointer may be NULL. */
    void (*draw)(const Dataset *dataset, uint64_t key, void *inputs, void *targets);
} DataSource;

struct Dataset {
    ModelConfig config;
    Arena arena; /* owns text and name */
    const char *name;
    const char *text;      /* NULL if the source reads no text */
    size_t size, training; /* bytes of the text; the first `training` of them are for training */
};

/* windows of a text as int32: the inputs are bytes, the target of each is the byte after it */
extern const DataSource data_text;
extern const DataSource data_noise; /* inputs and targets are rows of normally distributed floats */

enum { LAYER_COMPONENTS = 6, MODEL_SIZES = 15 };

struct ModelSpec {
    const char *name;
    ModelConfig defaults; /* its `model` is this ModelSpec */
    /* layer: the components of a layer in the order of its forward; NULL after the last one, unless there are
       LAYER_COMPONENTS */
    const ComponentKind *first, *layer[LAYER_COMPONENTS], *last;
    /* A second kind of layer, such as dense layers among layers with experts; its components are listed as in `layer`.
       is_other: whether layer `layer` is of this kind; NULL if there is no second kind. */
    const ComponentKind *other_layer[LAYER_COMPONENTS];
    bool (*is_other)(const ModelConfig *config, uint32_t layer);
    const DataSource *data;
    /* the settings on which the runs that save and load weights must agree, besides layers and hidden; NULL after the
       last one */
    const char *sizes[MODEL_SIZES];
    /* Checks the settings that concern only this model; fails with STATUS_BAD_INPUT. NULL: nothing to check. */
    Status (*check)(const ModelConfig *config, Error *error);
};

/* Default settings that gpt and moe share: the sizes of a small model on bytes, and its optimizer. */
#define BYTE_MODEL_DEFAULTS                                                                                       \
    .hidden = 96, .heads = 4, .sequence = 64, .microbatch_size = 1, .vocabulary = 256, .seed = 1,                 \
    .learning_rate = 4e-3, .warmup_steps = 20, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, \
    .clip_norm = 1

/* All models; the first is the default. The ModelSpec of MODEL(gpt) is model_gpt, and so on. */
#define MODEL_LIST \
    MODEL(gpt)     \
    MODEL(mlp)     \
    MODEL(moe)

#define MODEL(name) extern const ModelSpec model_##name;
MODEL_LIST
#undef MODEL

extern const ModelSpec *const models[]; /* NULL-terminated */
