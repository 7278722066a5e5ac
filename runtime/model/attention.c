/* The first half of a pre-norm block: y = x + projection(attention(norm(x))), causal, several heads. */

#include "runtime/model/component.h"

enum { GAIN, SHIFT, QKV, QKV_BIAS, PROJECTION, PROJECTION_BIAS };
enum { NORM, TO_QKV, ATTENTION, PROJECT };

/* Kept from F to I, from F to W, from I to W; and of one pass. */
typedef struct Parts {
    void *qkv, *probabilities;
    void *normed, *statistics, *mixed;
    void *dqkv, *dnormed;
    void *dmixed;
} Parts;

static Parts parts_of(const Component *c, const PassBuffers *b)
{
    const size_t rows = c->rows, hidden = c->config.hidden;
    return (Parts){
        .qkv = b->context,
        .probabilities = component_at(c, b->context, component_round(3 * rows * hidden)),
        .normed = b->stash,
        .mixed = component_at(c, b->stash, component_round(rows * hidden)),
        .statistics = component_at(c, b->stash, 2 * component_round(rows * hidden)),
        .dqkv = b->gradient,
        .dnormed = component_at(c, b->gradient, component_round(3 * rows * hidden)),
        .dmixed = b->workspace,
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

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->norm_forward(c->device, c->kernels[NORM], b->x, component_weights(c, b, GAIN),
                          component_weights(c, b, SHIFT), p.normed, p.statistics, error));
    TRY(run->linear_forward(c->device, c->kernels[TO_QKV], p.normed, component_weights(c, b, QKV),
                            component_weights(c, b, QKV_BIAS), NULL, p.qkv, error));
    TRY(run->attention_forward(c->device, c->kernels[ATTENTION], p.qkv, p.mixed, p.probabilities, error));
    return run->linear_forward(c->device, c->kernels[PROJECT], p.mixed, component_weights(c, b, PROJECTION),
                               component_weights(c, b, PROJECTION_BIAS), b->x, b->y, error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->linear_backward_input(c->device, c->kernels[PROJECT], b->dy, component_weights(c, b, PROJECTION), p.dmixed,
                                   error));
    TRY(run->attention_backward(c->device, c->kernels[ATTENTION], p.qkv, p.mixed, p.probabilities, p.dmixed, p.dqkv,
                                error));
    TRY(run->linear_backward_input(c->device, c->kernels[TO_QKV], p.dqkv, component_weights(c, b, QKV), p.dnormed,
                                   error));
    return b->dx ? run->norm_backward_input(c->device, c->kernels[NORM], b->x, p.statistics,
                                            component_weights(c, b, GAIN), p.dnormed, b->dy, b->dx, error)
                 : STATUS_OK;
}

static Status backward_weight(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->linear_backward_weight(c->device, c->kernels[PROJECT], p.mixed, b->dy,
                                    component_weight_gradients(c, b, PROJECTION),
                                    component_weight_gradients(c, b, PROJECTION_BIAS), error));
    TRY(run->linear_backward_weight(c->device, c->kernels[TO_QKV], p.normed, p.dqkv,
                                    component_weight_gradients(c, b, QKV), component_weight_gradients(c, b, QKV_BIAS),
                                    error));
    return run->norm_backward_weight(c->device, c->kernels[NORM], b->x, p.statistics, p.dnormed,
                                     component_weight_gradients(c, b, GAIN), component_weight_gradients(c, b, SHIFT),
                                     error);
}

const ComponentKind component_attention = {"attention", open, forward, backward_input, backward_weight};
