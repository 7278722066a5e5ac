/* The gpt model: a GPT-2 of bytes. */

#include "runtime/model/spec.h"

static Status check(const ModelConfig *config, Error *error)
{
    if (config->hidden % config->heads != 0)
        return error_set(error, STATUS_BAD_INPUT, "heads = %u does not divide hidden = %u", (unsigned)config->heads,
                         (unsigned)config->hidden);
    if (config->vocabulary < 256)
        return error_set(error, STATUS_BAD_INPUT, "vocabulary = %u: bytes need 256", (unsigned)config->vocabulary);
    return STATUS_OK;
}

const ModelSpec model_gpt = {
    .name = "gpt",
    .defaults = {.model = &model_gpt,
                 .hidden = 96,
                 .heads = 4,
                 .sequence = 64,
                 .microbatch_size = 1,
                 .vocabulary = 256,
                 .seed = 1,
                 .learning_rate = 4e-3,
                 .warmup_steps = 20,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .epsilon = 1e-8,
                 .weight_decay = 0.1,
                 .clip_norm = 1},
    .first = &component_embedding,
    .layer = {&component_attention, &component_mlp},
    .last = &component_head,
    .data = &data_text,
    .sizes = {"heads", "sequence", "vocabulary"},
    .check = check,
};
