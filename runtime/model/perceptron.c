/* A layer of the mlp model, as in the example of DualPipe's authors: y = gelu(x up) down. The hidden layer is four
   times as wide. No biases, norm or residual. */

#include "runtime/model/component.h"

#include <math.h>

enum { UP, DOWN };
enum { TO_WIDE, GELU, TO_NARROW };

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, wide = 4 * hidden;
    /* the standard deviation of a uniform distribution from -1 / sqrt(inputs) to 1 / sqrt(inputs), which frameworks use
       to initialise linear layers */
    component_parameter(c, (Parameter){"perceptron.up", hidden * wide, true, 1 / sqrt(3 * (double)hidden), 0});
    component_parameter(c, (Parameter){"perceptron.down", wide * hidden, true, 1 / sqrt(3 * (double)wide), 0});
    const KernelShape to_wide = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = wide};
    const KernelShape gelu = {.kind = KERNEL_GELU, .rows = rows, .columns = wide};
    const KernelShape to_narrow = {.kind = KERNEL_LINEAR, .rows = rows, .columns = wide, .outputs = hidden};
    TRY(device_kernel(c->device, &to_wide, &c->kernels[TO_WIDE], error));
    TRY(device_kernel(c->device, &gelu, &c->kernels[GELU], error));
    TRY(device_kernel(c->device, &to_narrow, &c->kernels[TO_NARROW], error));
    c->context = component_round(rows * wide);  /* input of the GELU */
    c->stash = component_round(rows * wide);    /* output of the GELU */
    c->gradient = component_round(rows * wide); /* gradient of the GELU's input */
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    op_append(list,
              &(Op){.kind = OPERATION_linear_gelu_forward,
                    .kernel = c->kernels[TO_WIDE],
                    .gelu = c->kernels[GELU],
                    .linear_gelu_forward = {at->x, component_weights(c, at, UP), no_address, at->context, at->stash}});
    APPEND(list, linear_forward, c->kernels[TO_NARROW], at->stash, component_weights(c, at, DOWN), no_address,
           no_address, at->y);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    op_append(list,
              &(Op){.kind = OPERATION_linear_gelu_backward_input,
                    .kernel = c->kernels[TO_NARROW],
                    .gelu = c->kernels[GELU],
                    .linear_gelu_backward_input = {at->dy, component_weights(c, at, DOWN), at->context, at->gradient}});
    if (at->dx.base)
        APPEND(list, linear_backward_input, c->kernels[TO_WIDE], at->gradient, component_weights(c, at, UP), at->dx);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    APPEND(list, linear_backward_weight, c->kernels[TO_NARROW], at->stash, at->dy,
           component_weight_gradients(c, at, DOWN), no_address);
    APPEND(list, linear_backward_weight, c->kernels[TO_WIDE], at->x, at->gradient,
           component_weight_gradients(c, at, UP), no_address);
}

const ComponentKind component_perceptron = {RECIPE_PERCEPTRON, open, forward, backward_input, backward_weight, false};
