#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

/* What the stages of a pipeline compute. A model is cut into stages by layers; a stage is a list of components
   (embedding, attention, MLP, head, ...), each with its own F, I and W.

   Sizes are in elements of the device, those of gradients, moments and the optimizer's weights in masters
   (runtime/device/ device.h). All buffers are the caller's and in the device's memory, *loss, outputs and data too;
   what a pass has made is there when the device has done it. Gradients and moments are zero at first. A Stage is used
   by one thread at a time. Rows are tokens: a message is [microbatch_size * sequence, hidden], row-major. */

#include "runtime/base/recipe.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ModelSpec ModelSpec; /* spec.h */

/* How a router scores experts. */
typedef enum RouterScores { SCORES_SIGMOID, SCORES_SOFTMAX, ROUTER_SCORES } RouterScores;

typedef struct ModelConfig {
    const ModelSpec *model;
    uint32_t layers; /* 0: one a stage */
    uint32_t hidden, heads;
    uint32_t sequence;        /* tokens of a sample; mlp: rows of a sample */
    uint32_t microbatch_size; /* samples of a microbatch */
    uint32_t vocabulary;      /* 256: bytes; of no meaning for mlp */
    uint64_t seed;
    /* moe; of no meaning elsewhere */
    uint32_t experts, experts_per_token, expert_hidden, shared_experts;
    uint32_t expert_groups, groups_per_token;
    uint32_t dense_layers;    /* the first ones have no experts; of those behind them */
    uint32_t expert_interval; /* every so many-th has, beginning with their first */
    uint32_t router;          /* RouterScores */
    double gate_factor, bias_rate;
    double balance_loss; /* weight of the sequence-wise balance loss */
    /* training */
    double learning_rate, warmup_steps, beta1, beta2, epsilon, weight_decay, clip_norm;
    uint32_t given; /* which of these somebody has set: a bit each, of config.c */
} ModelConfig;

/* "gpt", "mlp", "moe". */
const char *model_name(const ModelConfig *config);
/* Whether it trains on text, of which a part is held out. */
bool model_reads_text(const ModelConfig *config);

/* `name` is a built-in model (NULL: gpt) or a file of lines `key = value` with `#` comments, whose first key may be
   `model = NAME`; the keys are the names above. Unknown keys, bad values: STATUS_BAD_INPUT with file, line and the
   nearest known key. */
Status model_config_load(const char *name, ModelConfig *config, Error *error);
/* One `key=value`, as in the file; STATUS_BAD_USAGE. */
Status model_config_set(ModelConfig *config, const char *assignment, Error *error);
/* A setting of saved weights (model, or a size), which is taken over, with what else a model sets, unless another was
   given. Then that is added to `contradictions`: "; hidden is 96 there and 128 here". STATUS_BAD_INPUT: there is no
   such setting. */
Status model_config_adopt(ModelConfig *config, const char *key, const char *value, Error *contradictions, Error *error);
/* The settings that weights depend on, which model_config_adopt takes: a line `key value` each, the model first. */
void model_config_write_sizes(const ModelConfig *config, FILE *stream);
/* Whether the values go together (hidden % heads == 0, layers >= stages, ...); fills in layers = stages where 0. */
Status model_config_check(ModelConfig *config, uint32_t stages, Error *error);

typedef struct StageSizes {
    size_t parameters; /* also the size, in masters, of the gradient and of each optimizer moment */
    size_t message;    /* activation or gradient between stages; the same for every stage */
    size_t context;    /* kept from F to I */
    size_t stash;      /* kept from F to W */
    size_t gradient;   /* kept from I to W */
    size_t workspace;  /* of one pass; nothing lives on in it */
    size_t inputs;     /* bytes of one microbatch's input data (first stage) */
    size_t targets;    /* bytes of one microbatch's target data (last stage) */
    size_t outputs;    /* elements of the last stage's output (gpt: logits [tokens, vocabulary]; mlp: [rows, hidden]) */
} StageSizes;

typedef struct Stage Stage;

/* What a stage holds for good. Where the device has one type for elements and masters, `masters` is `parameters`. */
typedef struct StageWeights {
    void *parameters;                    /* elements: what the passes read */
    void *masters;                       /* what the optimizer goes on from */
    void *gradients, *moment1, *moment2; /* masters */
} StageWeights;

/* One stage of `stages`, ready to run on `device`: kernels are chosen and compiled here, not in the passes.
   `microbatches` of a step scale the loss's gradient by 1/microbatches. */
Status stage_open(const ModelConfig *config, Device *device, uint32_t stage, uint32_t stages, uint32_t microbatches,
                  Stage **opened, Error *error);
void stage_close(Stage *stage);
const StageSizes *stage_sizes(const Stage *stage);

/* Where a pass finds and leaves its data. Every pass gets the fields that the instruction's slots name; see
   runtime/program/opcodes.def for who holds what how long. */
typedef struct PassBuffers {
    const void *parameters;    /* W needs none: NULL */
    void *parameter_gradients; /* masters; W adds to it */
    const void *x;             /* INPUT; NULL at the first stage, which reads `inputs` */
    void *y;                   /* OUTPUT; NULL at the last stage, which writes *loss */
    void *dx;                  /* DINPUT; NULL at the first stage */
    const void *dy;            /* DOUTPUT; NULL at the last stage */
    void *context, *stash, *gradient, *workspace;
    const void *inputs;  /* first stage: gpt int32 tokens [tokens]; mlp float rows. Needed by F, I and W */
    const void *targets; /* last stage: the same forms. Needed by F */
    void *outputs;       /* last stage, F: logits or rows as float; NULL: not wanted */
    /* last stage, F: mean loss of the microbatch (nats a token; mlp: mean squared error) */
    double *loss;
} PassBuffers;

Status stage_forward(Stage *stage, const PassBuffers *buffers, Error *error);
Status stage_backward_input(Stage *stage, const PassBuffers *buffers, Error *error);
Status stage_backward_weight(Stage *stage, const PassBuffers *buffers, Error *error);

/* One F&B: the F of one microbatch and the backward of another, `weights` saying whether that is the whole one or I
   alone, of any two stages on one device, component by component in the recipe's order (recipe_order), which goes
   through the layers of both, the first of the F with the last of the backward. What is not of a layer, or not named,
   runs where its half comes to it. The same numbers, bit for bit, as the halves one after the other. */
typedef struct StagePair {
    Stage *forward, *backward;
    PassBuffers forward_buffers, backward_buffers;
    bool weights;
    int64_t
        *forward_time; /* stage_overlap stores here how many nanoseconds the F took of the F&B, where the device runs
                              one operation after the other; else it leaves it alone. NULL: not wanted */
} StagePair;

Status stage_overlap(const StagePair *pair, const Recipe *recipe, Error *error);

/* A pass or an F&B whose buffers never move, as a device that runs many operations at once (DeviceFusion) wants it. It
   belongs to the device, and its stages must be open when it runs. */
typedef struct BoundList BoundPass;

/* Binds F, I (RECIPE_B) or W to the addresses of its buffers. *bound is NULL where the device gains nothing by it: then
   the pass runs by the functions above. */
Status stage_bind(const Stage *stage, RecipePass pass, const PassBuffers *buffers, BoundPass **bound, Error *error);
/* The same for an F&B. Also makes the list of operations that stage_overlap runs for such a pair, with any buffers;
   otherwise its first call does. */
Status stage_bind_overlap(const StagePair *pair, const Recipe *recipe, BoundPass **bound, Error *error);
Status stage_run(BoundPass *bound, Error *error);

/* What the parts of stages have taken, in nanoseconds, summed up over all that ran. Zero at first; whoever reads it
   resets it. */
typedef struct PartTime {
    int64_t nanoseconds;
    uint64_t count;
} PartTime;

typedef struct PartTimes {
    PartTime parts[2][MODEL_PARTS][PART_PASSES]; /* alone, and within an F&B */
    int64_t pairs;                               /* the F&Bs as a whole */
    bool in_pair;
} PartTimes;

/* From now on the stage adds the times of its parts to `times`, which stages of one rank may share; NULL: no longer.
   Only for a device whose operations are done when their calls return (DeviceTable.async is NULL). */
void stage_time_parts(Stage *stage, PartTimes *times);

/* Starting weights: a function of config.seed and of the parameter's place in the whole model, not of the cut into
   stages, so that every schedule starts from equal weights. */
Status stage_initialize(Stage *stage, const StageWeights *weights, Error *error);

/* What the W of a step have counted in layers with experts. */
typedef struct StageTallies {
    double loads, worst_load; /* of each layer the tokens of its busiest expert over the mean: the sum, the largest */
    double layers;            /* that have experts */
    double balance_loss;      /* the sum over layers and microbatches of what the balance loss adds to the loss */
} StageTallies;

/* They stand in the place of gradients until this takes them from there: before stage_gradient_norm, and once before
   each stage_update, which balances by them. Adds to what `tallies` holds. */
Status stage_take_tallies(Stage *stage, const StageWeights *weights, StageTallies *tallies, Error *error);

/* Sum of squares of the gradient, in double, in a fixed order, into the device's memory. */
Status stage_gradient_norm(Stage *stage, const StageWeights *weights, double *sum_of_squares, Error *error);
/* One AdamW step (Loshchilov & Hutter, 2019), decay on matrices only; `step` from 1, linear warm-up, then constant
   rate. Gradients are multiplied by `clip` first and are zero afterwards. */
Status stage_update(Stage *stage, const StageWeights *weights, uint64_t step, double clip, Error *error);

/* --- data.c --- */
typedef struct Dataset Dataset;
/* gpt: the bytes of a file; NULL: a text that every Debian has. The last tenth is held out. mlp: seeded noise, no file.
   A file shorter than twice sequence + 1 is STATUS_BAD_INPUT saying how long it must be. */
Status dataset_open(const ModelConfig *config, const char *path, Dataset **opened, Error *error);
void dataset_close(Dataset *dataset);
const char *dataset_name(const Dataset *dataset);
/* The data of microbatch `number` of step `step`: a function of (seed, step, number) alone. Either pointer may be
   NULL. */
void dataset_microbatch(const Dataset *dataset, uint64_t step, uint32_t number, void *inputs, void *targets);
/* The held-out part, gpt alone: windows of `sequence` tokens one after the other; what is left at the end is too short
   for one. mlp: 0. */
uint64_t dataset_windows(const Dataset *dataset);

/* Windows first .. first + count - 1, which a microbatch holds equally often: its loss is their mean. */
typedef struct Windows {
    uint64_t first;
    uint32_t count; /* divides microbatch_size; 0: all are through, and this microbatch counts for nothing */
} Windows;

/* Which of the first `windows` ones microbatch `number` of an evaluation holds: as many as fill it, and at the end as
   many as are left and divide it. So every window counts once, whatever the size of a microbatch. */
Windows held_out_windows(uint64_t windows, uint32_t microbatch_size, uint64_t number);
void dataset_held_out(const Dataset *dataset, Windows windows, void *inputs, void *targets);
/* Entropy of single bytes of the training part, nats; 0 for mlp. */
double dataset_byte_entropy(const Dataset *dataset);

#endif
