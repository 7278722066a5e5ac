/* The moe model: a GPT-2 on bytes with experts instead of MLPs, as in DeepSeek-V3 (arXiv 2412.19437, section 2.1.2).
   The first `dense_layers` layers have an MLP; of the others, the first one and every `expert_interval`-th after it
   have experts, and the rest have an MLP. */

#include "base/counted.h"
#include "runtime/model/experts.h"
#include "runtime/model/spec.h"

/* the most weights of all experts, and the most numbers that they keep of a microbatch: bytes still fit in a size_t */
static const double numbers_most = 0x1p44;

static Status check_sizes(const ModelConfig *config, Error *error)
{
    const double routed = (double)config->microbatch_size * config->sequence * config->experts_per_token;
    const double widths = (double)config->hidden * config->expert_hidden;
    if (routed > INT32_MAX)
        return error_set(error, STATUS_BAD_INPUT,
                         "microbatch_size * sequence * experts_per_token is over %d: make one of them smaller",
                         INT32_MAX);
    if (3 * widths * config->layers * ((double)config->experts + config->shared_experts) > numbers_most)
        return error_set(
            error, STATUS_BAD_INPUT,
            "this model is too large: make experts, shared_experts, expert_hidden, hidden or layers smaller");
    if (routed * config->layers * 8.0 * ((double)config->hidden + config->expert_hidden) > numbers_most)
        return error_set(error, STATUS_BAD_INPUT,
                         "a microbatch is too large: make microbatch_size, sequence or experts_per_token smaller");
    return STATUS_OK;
}

static Status check(const ModelConfig *config, Error *error)
{
    const uint32_t groups = config->expert_groups;
    TRY(model_gpt.check(config, error));
    if (config->experts % groups != 0)
        return error_set(error, STATUS_BAD_INPUT, "expert_groups = %u does not divide experts = %u", groups,
                         config->experts);
    if (config->groups_per_token > groups)
        return error_set(error, STATUS_BAD_INPUT, "groups_per_token = %u, but there are only expert_groups = %u",
                         config->groups_per_token, groups);
    const uint32_t choice = config->experts / groups * config->groups_per_token;
    if (config->experts_per_token > config->experts)
        return error_set(error, STATUS_BAD_INPUT, "experts_per_token = %u, but a layer has %s",
                         config->experts_per_token, counted(config->experts, "expert").text);
    if (config->experts_per_token > choice)
        return error_set(error, STATUS_BAD_INPUT, "experts_per_token = %u, but a token chooses among only %s: %s of %s",
                         config->experts_per_token, counted(choice, "expert").text,
                         counted(config->groups_per_token, "group").text,
                         counted(config->experts / groups, "expert").text);
    return check_sizes(config, error);
}

static bool is_dense(const ModelConfig *config, uint32_t layer)
{
    return layer < config->dense_layers || (layer - config->dense_layers) % config->expert_interval != 0;
}

const ModelSpec model_moe = {
    .name = "moe",
    .defaults = {.model = &model_moe,
                 BYTE_MODEL_DEFAULTS,
                 .experts = 8,
                 .experts_per_token = 2,
                 /* three active experts (two routed, one shared) need about as many multiply-adds as gpt's MLP */
                 .expert_hidden = 85,
                 .shared_experts = 1,
                 .expert_groups = 1,
                 .groups_per_token = 1,
                 .expert_interval = 1,
                 .router = SCORES_SIGMOID,
                 .gate_factor = 1,
                 .bias_rate = 0.01, /* ten times DeepSeek-V3's, because a run has only hundreds of steps */
                 .balance_loss = 1e-4},
    .first = &component_embedding,
    .layer = {&component_attention, &component_router, &component_dispatch, &component_shared, &component_experts,
              &component_combine},
    .other_layer = {&component_attention, &component_mlp},
    .is_other = is_dense,
    .last = &component_head,
    .data = &data_text,
    .sizes = {"heads", "sequence", "vocabulary", "experts", "experts_per_token", "expert_hidden", "shared_experts",
              "expert_groups", "groups_per_token", "dense_layers", "expert_interval", "router", "gate_factor"},
    .check = check,
};
