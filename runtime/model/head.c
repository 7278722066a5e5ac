/* The last component of gpt and moe: logits = norm(x) w, and their cross-entropy with the targets. F saves the gradient
   of the logits, so I and W need no targets. */

#include "runtime/model/component.h"

enum { GAIN, SHIFT, VOCABULARY };
enum { NORM, TO_LOGITS, LOSS };

/* Addresses of intermediate results of a microbatch. */
typedef struct Parts {
    /* saved from F to W; I reads statistics and logits, too. After F, `logits` holds the gradient of the logits */
    Address normed, statistics, logits;
    Address dnormed; /* saved from I to W */
} Parts;

static Parts parts_of(const Component *c, const PassAddresses *at)
{
    const size_t rows = c->rows, hidden = c->config.hidden, vocabulary = c->config.vocabulary;
    return (Parts){
        .normed = at->stash,
        .logits = component_at(c, at->stash, component_round(rows * hidden)),
        .statistics = component_at(c, at->stash, component_round(rows * hidden) + component_round(rows * vocabulary)),
        .dnormed = at->gradient,
    };
}

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, vocabulary = c->config.vocabulary;
    component_parameter(c, (Parameter){"head.gain", hidden, false, 0, 1});
    component_parameter(c, (Parameter){"head.shift", hidden, false, 0, 0});
    component_parameter(c, (Parameter){"head.vocabulary", hidden * vocabulary, true, component_deviation(c), 0});
    const KernelShape norm = {.kind = KERNEL_NORM, .rows = rows, .columns = hidden};
    const KernelShape to_logits = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = vocabulary};
    const KernelShape loss = {.kind = KERNEL_CROSS_ENTROPY, .rows = rows, .columns = vocabulary};
    TRY(device_kernel(c->device, &norm, &c->kernels[NORM], error));
    TRY(device_kernel(c->device, &to_logits, &c->kernels[TO_LOGITS], error));
    TRY(device_kernel(c->device, &loss, &c->kernels[LOSS], error));
    c->stash = component_round(rows * hidden) + component_round(rows * vocabulary) +
               component_round(c->kernels[NORM]->context);
    c->gradient = component_round(rows * hidden);
    c->data_bytes = rows * sizeof(int32_t);
    c->outputs = rows * vocabulary;
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, norm_forward, c->kernels[NORM], at->x, component_weights(c, at, GAIN), component_weights(c, at, SHIFT),
           p.normed, p.statistics);
    APPEND(list, linear_forward, c->kernels[TO_LOGITS], p.normed, component_weights(c, at, VOCABULARY), no_address,
           no_address, p.logits);
    op_append(list, &(Op){.kind = OPERATION_to_floats,
                          .count = c->rows * c->config.vocabulary,
                          .to_floats = {p.logits, at->outputs}});
    op_append(list, &(Op){.kind = OPERATION_cross_entropy,
                          .kernel = c->kernels[LOSS],
                          .scale = c->loss_scale,
                          .cross_entropy = {at->targets, p.logits, at->loss}});
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, linear_backward_input, c->kernels[TO_LOGITS], p.logits, component_weights(c, at, VOCABULARY),
           p.dnormed);
    if (at->dx.base)
        APPEND(list, norm_backward_input, c->kernels[NORM], at->x, p.statistics, component_weights(c, at, GAIN),
               p.dnormed, no_address, at->dx);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, linear_backward_weight, c->kernels[TO_LOGITS], p.normed, p.logits,
           component_weight_gradients(c, at, VOCABULARY), no_address);
    APPEND(list, norm_backward_weight, c->kernels[NORM], at->x, p.statistics, p.dnormed,
           component_weight_gradients(c, at, GAIN), component_weight_gradients(c, at, SHIFT));
}

const ComponentKind component_head = {PART_HEAD, open, forward, backward_input, backward_weight, false};
