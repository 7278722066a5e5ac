#pragma once

/* What the stages of a pipeline compute. A model's layers are divided into stages. A stage is a list of components
   (embedding, attention, MLP, head, ...), each with its own F, I and W.

   Sizes are in numbers of the compute type (runtime/device/device.h); those of gradients, moments and the optimizer's
   weights are in numbers of the master type. The caller owns all buffers; they are in the device's memory, including
   *loss, outputs and data. A pass's results are there when the device has completed it. Gradients and moments must be
   zero at first. A Stage is used by one thread at a time. Rows are tokens: a message is [microbatch_size * sequence,
   hidden], row-major. */

#include "program/times/part_spans.h"
#include "program/recipe.h"
#include "base/status.h"
#include "runtime/device/device.h"
#include "runtime/device/group.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ModelSpec ModelSpec; /* spec.h */

/* How a router scores experts. */
typedef enum RouterScores { SCORES_SIGMOID, SCORES_SOFTMAX, ROUTER_SCORES } RouterScores;

typedef struct ModelConfig {
    const ModelSpec *model;
    uint32_t layers; /* 0: one per stage */
    uint32_t hidden, heads;
    uint32_t sequence;        /* tokens per sample; mlp: rows per sample */
    uint32_t microbatch_size; /* samples per microbatch */
    uint32_t vocabulary;      /* at least 256, as tokens are bytes; mlp does not use it */
    uint64_t seed;
    /* moe only */
    uint32_t experts, experts_per_token, expert_hidden, shared_experts;
    uint32_t expert_groups, groups_per_token;
    /* The first `dense_layers` layers have no experts. Of the layers after them, the first one and every
       `expert_interval`-th after it have experts. */
    uint32_t dense_layers, expert_interval;
    uint32_t router; /* RouterScores */
    double gate_factor, bias_rate;
    double balance_loss; /* weight of the sequence-wise balance loss */
    /* The host sets expert_group and expert_rows; a file of settings cannot. expert_group: the members that divide the
       experts of every stage; NULL if each stage has all its experts. It outlives the stages. expert_rows: how many
       rows a stage's experts may get in a pass, as a multiple of the rows that they get if all experts are chosen
       equally often; 0: the worst case */
    const ExpertGroup *expert_group;
    double expert_rows;
    /* training */
    double learning_rate, warmup_steps, beta1, beta2, epsilon, weight_decay, clip_norm;
    uint32_t given; /* which settings were given: one bit for each key in config.c, and one for the model */
} ModelConfig;

/* Whether `name` is the name of a built-in model; otherwise model_config_load takes it for a file. */
bool model_is_built_in(const char *name);
/* The name of the model: "gpt", "mlp" or "moe". */
const char *model_name(const ModelConfig *config);
/* Whether the model trains on text. A part of the text is then held out for evaluation. */
bool model_reads_text(const ModelConfig *config);

/* Loads a configuration. `name` is a built-in model (NULL: gpt), or a file of lines `key = value` with `#` comments.
   The first key of a file may be `model = NAME`; the other keys are the fields of ModelConfig. Unknown key or bad
   value: STATUS_BAD_INPUT with file, line and the nearest known key. */
Status model_config_load(const char *name, ModelConfig *config, Error *error);
/* Sets one `key=value`, as in the file. STATUS_BAD_USAGE: unknown key or bad value. */
Status model_config_set(ModelConfig *config, const char *assignment, Error *error);
/* Adopts a setting from a file of weights: the model, or a setting on which the runs that save and load weights must
   agree. A new model also brings its defaults. If a different value was given, keeps that value and appends a text such
   as "; hidden is 96 in the file, but 128 in this run" to `contradictions`. STATUS_BAD_INPUT: unknown setting, bad
   value, or a setting on which these runs need not agree. */
Status model_config_adopt(ModelConfig *config, const char *key, const char *value, Error *contradictions, Error *error);
/* Writes the settings that model_config_adopt accepts, for a file of weights: one line `key value` each, the model
   first. */
void model_config_write_sizes(const ModelConfig *config, FILE *stream);
/* Writes all settings: one line `key value` each, the model first. */
void model_config_write(const ModelConfig *config, FILE *stream);
/* Checks that the values are consistent (hidden % heads == 0, layers >= stages, ...). Sets layers = stages if it is
   0. */
Status model_config_check(ModelConfig *config, uint32_t stages, Error *error);

typedef struct StageSizes {
    /* number of parameters, including padding (component_round); the gradient and each optimizer moment have as many
       numbers, of the master type */
    size_t parameters;
    size_t experts; /* how many of `parameters` belong to experts; these come last */
    /* how many numbers a saved file has for this stage: for all experts of each layer, also those of other members of a
       group */
    size_t saved;
    size_t message;   /* an activation or gradient that is sent between stages; the same for every stage */
    size_t context;   /* activations saved from F to I (dgrad) */
    size_t stash;     /* activations saved from F to W (wgrad); I may read them, too */
    size_t gradient;  /* saved from I to W for the deferred weight gradient */
    size_t workspace; /* scratch memory of one pass, in numbers of the compute type */
    size_t inputs;    /* bytes of one microbatch's input data (first stage) */
    size_t targets;   /* bytes of one microbatch's target data (last stage) */
    /* elements of the last stage's output (gpt, moe: logits [tokens, vocabulary]; mlp: [rows, hidden]) */
    size_t outputs;
} StageSizes;

typedef struct Stage Stage;

/* The persistent state of a stage. If the device's compute type and master type are the same, `parameters` and
   `master_weights` are the same memory. */
typedef struct StageWeights {
    void *parameters;                    /* the weights that passes read, of the compute type */
    void *master_weights;                /* the optimizer's weights, FP32 on a GPU */
    void *gradients, *moment1, *moment2; /* of the master type */
} StageWeights;

/* Opens stage `stage` of `stages` to run on `device`. Kernels are made here, not in passes. The gradient of the loss is
   scaled by 1 / microbatches. */
Status stage_open(const ModelConfig *config, Device *device, uint32_t stage, uint32_t stages, uint32_t microbatches,
                  Stage **opened, Error *error);
void stage_close(Stage *stage);
const StageSizes *stage_sizes(const Stage *stage);

/* A checksum of the stage's lists of operations, including the merged lists made so far. It is equal for stages that
   run the same operations at the same offsets in their buffers. */
uint32_t stage_checksum(const Stage *stage);
/* The number of all-to-alls in an F (RECIPE_F) or an I (RECIPE_B) of the stage. */
size_t stage_all_to_alls(const Stage *stage, RecipePass pass);

/* The buffers of a pass. Each kind of pass reads or writes only some of them; program/opcodes.def says which,
   and how long each is held. */
typedef struct PassBuffers {
    const void *parameters; /* W does not read it, so for W it may be NULL */
    /* buffers of the master type, each as large as the gradient of all parameters. W adds the gradients of experts'
       parameters to expert_gradients and all others to parameter_gradients. Both are the same memory, except in a
       reference with sharded experts */
    void *parameter_gradients, *expert_gradients;
    const void *x;  /* the input activation; NULL at the first stage, which reads `inputs` */
    void *y;        /* the output activation; NULL at the last stage, which writes *loss */
    void *dx;       /* the gradient of x; NULL at the first stage */
    const void *dy; /* the gradient of y; NULL at the last stage */
    void *context, *stash, *gradient, *workspace;
    /* first stage: int32 tokens (gpt, moe) or float rows (mlp). Read by F, and by W of gpt and moe */
    const void *inputs;
    const void *targets; /* last stage: targets, of the same type as `inputs`. Read by F */
    void *outputs;       /* last stage, F: logits or rows as float; NULL: not wanted */
    /* last stage, F: mean loss of the microbatch in nats per token; mlp: mean squared error */
    double *loss;
    /* W leaves out the weight gradients of the parts of layers whose bit 1 << ModelPart is set; 0: it computes all. It
       comes after all pointers, which are the bases of lists (pass_bases in component.h) */
    uint32_t left_out;
} PassBuffers;

Status stage_forward(Stage *stage, const PassBuffers *buffers, Error *error);
Status stage_backward_input(Stage *stage, const PassBuffers *buffers, Error *error);
Status stage_backward_weight(Stage *stage, const PassBuffers *buffers, Error *error);

/* An F&B: the F of one microbatch and the backward of another, of any two stages on one device. `weights`: the
   backward is I and W, less the W that the recipe puts off; otherwise I alone. Components run in the recipe's order
   (recipe_walk), which is repeated for each pair of layers: the first layer of the F with the last of the backward,
   and so on. Components outside the layers, or not named by the recipe, run when their half reaches them. The
   results are bit for bit those of the two halves run one after the other. An F&F is the F of two microbatches; its
   recipe says how their layers interleave. */
typedef struct StagePair {
    Stage *forward, *backward;
    PassBuffers forward_buffers, backward_buffers;
    bool weights;
    bool both_forward; /* true: an F&F, and `backward` is the stage of the second F */
    /* stage_overlap stores here how many nanoseconds the calls for the first F took. That is the time of the F if the
       device's operations are done when their calls return. NULL: not wanted */
    int64_t *forward_time;
} StagePair;

Status stage_overlap(const StagePair *pair, const Recipe *recipe, Error *error);

/* A pass, F&B or F&F bound to fixed buffers, for a device that runs several operations at once (DeviceFusion). The
   device owns it. Its stages must be open when it runs. */
typedef struct BoundList BoundPass;

/* Binds F, I (RECIPE_B) or W to its buffers. *bound is NULL if the device does not bind this pass: then run it by
   stage_forward, stage_backward_input or stage_backward_weight. */
Status stage_bind(const Stage *stage, RecipePass pass, const PassBuffers *buffers, BoundPass **bound, Error *error);
/* Binds an F&B or F&F. Also makes the merged list of operations of these two stages and this recipe, which
   stage_overlap then runs with any buffers. Without this call the first stage_overlap makes the list. */
Status stage_bind_overlap(const StagePair *pair, const Recipe *recipe, BoundPass **bound, Error *error);
Status stage_run(BoundPass *bound, Error *error);

/* The total time that a part of a stage took in one kind of pass, and the number of such passes. The caller sets both
   to 0 at first and after reading them. */
typedef struct PartTime {
    int64_t nanoseconds;
    uint64_t count;
} PartTime;

typedef struct PartTimes {
    PartTime parts[2][MODEL_PARTS][PART_PASSES]; /* [0]: in passes that run alone; [1]: within F&Bs and F&Fs */
    int64_t pairs;                               /* total nanoseconds of whole F&Bs and F&Fs */
    bool in_pair;
} PartTimes;

/* From now on the stage adds the times of its parts to `times`; NULL: it stops measuring. All stages of one rank may
   share one `times`. Only for a device with DeviceTable.async NULL, whose operations are done when their calls
   return. */
void stage_time_parts(Stage *stage, PartTimes *times);

/* From now on the stage notes in `spans` when its components run; NULL: it stops noting. All stages of one rank may
   share one `spans`. Only for a device with DeviceTable.async NULL. */
void stage_note_spans(Stage *stage, PartSpans *spans);
/* The most spans that one pass of the stage notes. A B counts as two passes. */
size_t stage_spans_most(const Stage *stage);

/* Writes the initial weights. They depend on config.seed and on the parameter's position in the whole model, not on the
   division into stages, so every schedule starts from equal weights. */
Status stage_initialize(Stage *stage, const StageWeights *weights, Error *error);

/* One parameter of a stage, as a saved file has it. The segments of a stage are in the order of the file, which does
   not depend on how the experts of a layer are divided. */
typedef struct StageSegment {
    size_t offset, elements; /* the segment's place in the stage's parameters, in numbers */
    /* for a parameter of experts: the elements of one expert, and of all experts of the layer, also those that other
       members of a group hold; for other parameters 0 */
    size_t expert, of_all;
    /* numbers in the file: of_all (if that is 0, `elements`), rounded up to a multiple of 16; the padding is zeros */
    size_t saved;
} StageSegment;

size_t stage_segments(const Stage *stage); /* how many */
StageSegment stage_segment(const Stage *stage, size_t index);

/* What the W passes of a step have counted in the layers with experts, summed over the layers of a stage. */
typedef struct StageTallies {
    /* the imbalance of a layer is the number of tokens of its busiest expert divided by the mean over its experts.
       loads: the sum of the imbalances; worst_load: the largest one */
    double loads, worst_load;
    double layers;       /* number of layers with experts */
    double balance_loss; /* sum over layers and microbatches of what the balance loss adds to the loss */
} StageTallies;

/* Adds the tallies, which W counts in the gradient buffer, to `tallies`, and sets them to 0 in that buffer. Call it
   once before each stage_update, which uses the tallies to balance experts, and before stage_gradient_norm. */
Status stage_take_tallies(Stage *stage, const StageWeights *weights, StageTallies *tallies, Error *error);

/* Computes the sum of squares of the gradient, in double and in a fixed order, into the device's memory. */
Status stage_gradient_norm(Stage *stage, const StageWeights *weights, double *sum_of_squares, Error *error);
/* Computes sums of squares of `values`, which are the gradients or the optimizer's weights, in double and in a fixed
   order. `sums` is in the device's memory. sums[0]: of all parameters except those of experts. sums[1 + m], not written
   if the stage has no experts: of the experts of member m of `members`; 0 for the other members if a group divides the
   experts. A member computes the same bits for its experts as a stage with all experts does. */
Status stage_sum_squares(Stage *stage, const void *values, uint32_t members, double *sums, Error *error);
/* One AdamW step (Loshchilov & Hutter, 2019), with weight decay on matrices only. `step` counts from 1; the rate warms
   up linearly and is then constant. Gradients are multiplied by `clip` first, and are zero afterwards. Parameters with
   a tally (component.h) have no AdamW step: biases of routers move by bias_rate, the others stay 0. */
Status stage_update(Stage *stage, const StageWeights *weights, uint64_t step, double clip, Error *error);

/* --- copies.c: physical experts (group.h), for a host that moves them between the members of a group --- */

/* The ExpertCopies of the index-th layer with experts; NULL: there are fewer such layers, or each expert has one copy
   that never moves. */
ExpertCopies *stage_copies(const Stage *stage, size_t index);
/* The bytes of all weights of one expert of one layer; 0: the stage has no experts. */
size_t stage_expert_bytes(const Stage *stage);
/* Copies the weights of one expert between `parameters`, the stage's weights, and `block` of stage_expert_bytes bytes:
   to `block` if `take`, otherwise from it. The expert is the slot-th physical expert that the stage holds in its
   index-th layer with experts. */
Status stage_copy_expert(const Stage *stage, size_t index, uint32_t slot, void *parameters, void *block, bool take,
                         Error *error);

/* --- data.c --- */
typedef struct Dataset Dataset;
/* Opens the data. gpt, moe: the bytes of a file; path NULL: a text that every Debian has. The last 10 % are held out,
   but at least sequence + 1 bytes. mlp: seeded noise; STATUS_BAD_USAGE if there is a path. STATUS_BAD_INPUT: the file
   cannot be read, or is shorter than 2 * (sequence + 1) bytes; the error says how long it must be. */
Status dataset_open(const ModelConfig *config, const char *path, Dataset **opened, Error *error);
void dataset_close(Dataset *dataset);
const char *dataset_name(const Dataset *dataset);
/* A checksum of the text; 0: there is no text (mlp). */
uint32_t dataset_checksum(const Dataset *dataset);
/* Writes the data of microbatch `number` of step `step`. They depend only on the data set, the seed, the step and the
   number. Either pointer may be NULL. */
void dataset_microbatch(const Dataset *dataset, uint64_t step, uint32_t number, void *inputs, void *targets);
/* The number of windows of `sequence` tokens in the held-out data, one after the other. After the last window there is
   at least one byte more, its last target. mlp: 0. */
uint64_t dataset_windows(const Dataset *dataset);

/* The windows of held-out data that one microbatch evaluates: first .. first + count - 1. The microbatch holds each of
   them equally often, so its loss is the mean of their losses. */
typedef struct Windows {
    uint64_t first;
    uint32_t count; /* divides microbatch_size; 0: no windows are left, so the loss of this microbatch is ignored */
} Windows;

/* Which windows microbatch `number` of an evaluation holds, if the evaluation uses windows 0 .. windows - 1. A
   microbatch holds microbatch_size windows; near the end it holds the largest number of remaining windows that divides
   microbatch_size. So every window counts once for any size of a microbatch. */
Windows held_out_windows(uint64_t windows, uint32_t microbatch_size, uint64_t number);
void dataset_held_out(const Dataset *dataset, Windows windows, void *inputs, void *targets);
/* Entropy of single bytes of the training part, in nats; 0 for mlp. */
double dataset_byte_entropy(const Dataset *dataset);
