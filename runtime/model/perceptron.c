/* A layer of the mlp model, as in the example of DualPipe's authors: y = gelu(x up) down, four times as wide inside,
   without biases, norm and residual. */

#include "runtime/model/component.h"

#include <math.h>

enum { UP, DOWN };
enum { TO_WIDE, GELU, TO_NARROW };

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, wide = 4 * hidden;
    /* the variance of weights uniform within 1 / sqrt(inputs), the frameworks' habit for linear layers */
    component_parameter(c, (Parameter){"perceptron.up", hidden * wide, true, 1 / sqrt(3 * (double)hidden), 0});
    component_parameter(c, (Parameter){"perceptron.down", wide * hidden, true, 1 / sqrt(3 * (double)wide), 0});
    const KernelShape to_wide = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = wide};
    const KernelShape gelu = {.kind = KERNEL_GELU, .rows = rows, .columns = wide};
    const KernelShape to_narrow = {.kind = KERNEL_LINEAR, .rows = rows, .columns = wide, .outputs = hidden};
    TRY(device_kernel(c->device, &to_wide, &c->kernels[TO_WIDE], error));
    TRY(device_kernel(c->device, &gelu, &c->kernels[GELU], error));
    TRY(device_kernel(c->device, &to_narrow, &c->kernels[TO_NARROW], error));
    c->context = component_round(rows * wide);  /* before the GELU */
    c->stash = component_round(rows * wide);    /* after it */
    c->gradient = component_round(rows * wide); /* of what is before it */
    return STATUS_OK;
}

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    TRY(run->linear_gelu_forward(c->device, c->kernels[TO_WIDE], c->kernels[GELU], b->x, component_weights(c, b, UP),
                                 NULL, b->context, b->stash, error));
    return run->linear_forward(c->device, c->kernels[TO_NARROW], b->stash, component_weights(c, b, DOWN), NULL, NULL,
                               b->y, error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    TRY(run->linear_gelu_backward_input(c->device, c->kernels[TO_NARROW], c->kernels[GELU], b->dy,
                                        component_weights(c, b, DOWN), b->context, b->gradient, error));
    return b->dx ? run->linear_backward_input(c->device, c->kernels[TO_WIDE], b->gradient, component_weights(c, b, UP),
                                              b->dx, error)
                 : STATUS_OK;
}

static Status backward_weight(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    TRY(run->linear_backward_weight(c->device, c->kernels[TO_NARROW], b->stash, b->dy,
                                    component_weight_gradients(c, b, DOWN), NULL, error));
    return run->linear_backward_weight(c->device, c->kernels[TO_WIDE], b->x, b->gradient,
                                       component_weight_gradients(c, b, UP), NULL, error);
}

const ComponentKind component_perceptron = {"perceptron", open, forward, backward_input, backward_weight};
