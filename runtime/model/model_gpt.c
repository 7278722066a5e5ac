/* The gpt model: a GPT-2 on bytes. */

#include "runtime/model/spec.h"

static Status check(const ModelConfig *config, Error *error)
{
    if (config->hidden % config->heads != 0)
        return error_set(error, STATUS_BAD_INPUT, "heads = %u does not divide hidden = %u", (unsigned)config->heads,
                         (unsigned)config->hidden);
    if (config->vocabulary < 256)
        return error_set(error, STATUS_BAD_INPUT, "vocabulary = %u: it must be at least 256, one for each byte",
                         (unsigned)config->vocabulary);
    return STATUS_OK;
}

const ModelSpec model_gpt = {
    .name = "gpt",
    .defaults = {.model = &model_gpt, BYTE_MODEL_DEFAULTS},
    .first = &component_embedding,
    .layer = {&component_attention, &component_mlp},
    .last = &component_head,
    .data = &data_text,
    .sizes = {"heads", "sequence", "vocabulary"},
    .check = check,
};
