/* The end of a gpt: logits = norm(x) w, and their cross-entropy with the targets. F leaves the gradient of the logits,
   so that I and W need no targets. */

#include "runtime/model/component.h"

enum { GAIN, SHIFT, VOCABULARY };
enum { NORM, TO_LOGITS, LOSS };

/* Kept from F to W, from I to W. */
typedef struct Parts {
    void *normed, *statistics, *logits;
    void *dnormed;
} Parts;

static Parts parts_of(const Component *c, const PassBuffers *b)
{
    const size_t rows = c->rows, hidden = c->config.hidden, vocabulary = c->config.vocabulary;
    return (Parts){
        .normed = b->stash,
        .logits = component_at(c, b->stash, component_round(rows * hidden)),
        .statistics = component_at(c, b->stash, component_round(rows * hidden) + component_round(rows * vocabulary)),
        .dnormed = b->gradient,
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
    return STATUS_OK;
}

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->norm_forward(c->device, c->kernels[NORM], b->x, component_weights(c, b, GAIN),
                          component_weights(c, b, SHIFT), p.normed, p.statistics, error));
    TRY(run->linear_forward(c->device, c->kernels[TO_LOGITS], p.normed, component_weights(c, b, VOCABULARY), NULL, NULL,
                            p.logits, error));
    if (b->outputs)
        TRY(run->to_floats(c->device, c->rows * c->config.vocabulary, p.logits, b->outputs, error));
    return run->cross_entropy(c->device, c->kernels[LOSS], b->targets, c->loss_scale, p.logits, b->loss, error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->linear_backward_input(c->device, c->kernels[TO_LOGITS], p.logits, component_weights(c, b, VOCABULARY),
                                   p.dnormed, error));
    return b->dx ? run->norm_backward_input(c->device, c->kernels[NORM], b->x, p.statistics,
                                            component_weights(c, b, GAIN), p.dnormed, NULL, b->dx, error)
                 : STATUS_OK;
}

static Status backward_weight(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->linear_backward_weight(c->device, c->kernels[TO_LOGITS], p.normed, p.logits,
                                    component_weight_gradients(c, b, VOCABULARY), NULL, error));
    return run->norm_backward_weight(c->device, c->kernels[NORM], b->x, p.statistics, p.dnormed,
                                     component_weight_gradients(c, b, GAIN), component_weight_gradients(c, b, SHIFT),
                                     error);
}

const ComponentKind component_head = {"head", open, forward, backward_input, backward_weight};
