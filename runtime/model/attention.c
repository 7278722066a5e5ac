/* The first half of a pre-norm block: y = x + projection(attention(norm(x))), with causal multi-head attention. */

#include "runtime/model/component.h"

enum { GAIN, SHIFT, QKV, QKV_BIAS, PROJECTION, PROJECTION_BIAS };
enum { NORM, TO_QKV, ATTENTION, PROJECT };

/* Addresses of intermediate results of a microbatch. */
typedef struct Parts {
    Address qkv, probabilities;        /* saved from F to I */
    Address normed, statistics, mixed; /* saved from F to W; I reads statistics and mixed, too */
    Address dqkv, dnormed;             /* saved from I to W */
    Address dmixed;                    /* scratch memory of I */
} Parts;

static Parts parts_of(const Component *c, const PassAddresses *at)
{
    const size_t rows = c->rows, hidden = c->config.hidden;
    return (Parts){
        .qkv = at->context,
        .probabilities = component_at(c, at->context, component_round(3 * rows * hidden)),
        .normed = at->stash,
        .mixed = component_at(c, at->stash, component_round(rows * hidden)),
        .statistics = component_at(c, at->stash, 2 * component_round(rows * hidden)),
        .dqkv = at->gradient,
        .dnormed = component_at(c, at->gradient, component_round(3 * rows * hidden)),
        .dmixed = at->workspace,
    };
}

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, heads = c->config.heads, sequence = c->config.sequence;
    component_parameter(c, (Parameter){"attention.gain", hidden, false, 0, 1});
    component_parameter(c, (Parameter){"attention.shift", hidden, false, 0, 0});
    component_parameter(c, (Parameter){"attention.qkv", 3 * hidden * hidden, true, component_deviation(c), 0});
    component_parameter(c, (Parameter){"attention.qkv_bias", 3 * hidden, false, 0, 0});
    component_parameter(c,
                        (Parameter){"attention.projection", hidden * hidden, true, component_residual_deviation(c), 0});
    component_parameter(c, (Parameter){"attention.projection_bias", hidden, false, 0, 0});
    const KernelShape norm = {.kind = KERNEL_NORM, .rows = rows, .columns = hidden};
    const KernelShape to_qkv = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = 3 * hidden};
    const KernelShape attention = {
        .kind = KERNEL_ATTENTION, .rows = rows, .columns = hidden, .sequence = sequence, .heads = heads};
    const KernelShape project = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = hidden};
    TRY(device_kernel(c->device, &norm, &c->kernels[NORM], error));
    TRY(device_kernel(c->device, &to_qkv, &c->kernels[TO_QKV], error));
    TRY(device_kernel(c->device, &attention, &c->kernels[ATTENTION], error));
    TRY(device_kernel(c->device, &project, &c->kernels[PROJECT], error));
    c->context = component_round(3 * rows * hidden) + component_round(c->kernels[ATTENTION]->context);
    c->stash = 2 * component_round(rows * hidden) + component_round(c->kernels[NORM]->context);
    c->gradient = component_round(3 * rows * hidden) + component_round(rows * hidden);
    c->workspace = rows * hidden;
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, norm_forward, c->kernels[NORM], at->x, component_weights(c, at, GAIN), component_weights(c, at, SHIFT),
           p.normed, p.statistics);
    APPEND(list, linear_forward, c->kernels[TO_QKV], p.normed, component_weights(c, at, QKV),
           component_weights(c, at, QKV_BIAS), no_address, p.qkv);
    APPEND(list, attention_forward, c->kernels[ATTENTION], p.qkv, p.mixed, p.probabilities);
    APPEND(list, linear_forward, c->kernels[PROJECT], p.mixed, component_weights(c, at, PROJECTION),
           component_weights(c, at, PROJECTION_BIAS), at->x, at->y);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, linear_backward_input, c->kernels[PROJECT], at->dy, component_weights(c, at, PROJECTION), p.dmixed);
    APPEND(list, attention_backward, c->kernels[ATTENTION], p.qkv, p.mixed, p.probabilities, p.dmixed, p.dqkv);
    APPEND(list, linear_backward_input, c->kernels[TO_QKV], p.dqkv, component_weights(c, at, QKV), p.dnormed);
    if (at->dx.base)
        APPEND(list, norm_backward_input, c->kernels[NORM], at->x, p.statistics, component_weights(c, at, GAIN),
               p.dnormed, at->dy, at->dx);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, linear_backward_weight, c->kernels[PROJECT], p.mixed, at->dy,
           component_weight_gradients(c, at, PROJECTION), component_weight_gradients(c, at, PROJECTION_BIAS));
    APPEND(list, linear_backward_weight, c->kernels[TO_QKV], p.normed, p.dqkv, component_weight_gradients(c, at, QKV),
           component_weight_gradients(c, at, QKV_BIAS));
    APPEND(list, norm_backward_weight, c->kernels[NORM], at->x, p.statistics, p.dnormed,
           component_weight_gradients(c, at, GAIN), component_weight_gradients(c, at, SHIFT));
}

const ComponentKind component_attention = {RECIPE_ATTENTION, open, forward, backward_input, backward_weight, false};
