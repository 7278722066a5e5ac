/* The shared experts, which process every token, computed as one expert of their total width. F adds x, the residual,
   to the result. If the model has no shared experts, this component has neither weights nor operations, and combine
   adds x. */

#include "runtime/model/experts.h"

enum { WIDE, NARROW }; /* parameters */
enum { TO_WIDE, SWIGLU, TO_NARROW };

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, width = shared_width(&c->config);
    if (!width)
        return STATUS_OK;
    component_parameter(c, (Parameter){"shared.wide", hidden * 2 * width, true, component_deviation(c), 0});
    component_parameter(c, (Parameter){"shared.narrow", width * hidden, true, component_residual_deviation(c), 0});
    const KernelShape to_wide = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = 2 * width};
    const KernelShape swiglu = {.kind = KERNEL_SWIGLU, .rows = rows, .columns = width};
    const KernelShape to_narrow = {.kind = KERNEL_LINEAR, .rows = rows, .columns = width, .outputs = hidden};
    TRY(device_kernel(c->device, &to_wide, &c->kernels[TO_WIDE], error));
    TRY(device_kernel(c->device, &swiglu, &c->kernels[SWIGLU], error));
    return device_kernel(c->device, &to_narrow, &c->kernels[TO_NARROW], error);
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    if (!c->parameter_count)
        return;
    APPEND(list, linear_forward, c->kernels[TO_WIDE], f.normed, component_weights(c, at, WIDE), no_address, no_address,
           f.shared_wide);
    APPEND(list, swiglu_forward, c->kernels[SWIGLU], f.shared_wide, no_address, f.shared_active);
    APPEND(list, linear_forward, c->kernels[TO_NARROW], f.shared_active, component_weights(c, at, NARROW), no_address,
           at->x, f.residual);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    if (!c->parameter_count)
        return;
    APPEND(list, linear_backward_input, c->kernels[TO_NARROW], at->dy, component_weights(c, at, NARROW),
           f.shared_dactive);
    APPEND(list, swiglu_backward, c->kernels[SWIGLU], f.shared_wide, f.shared_dactive, no_address, f.shared_dwide);
    APPEND(list, linear_backward_input, c->kernels[TO_WIDE], f.shared_dwide, component_weights(c, at, WIDE), f.dshared);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    if (!c->parameter_count)
        return;
    APPEND(list, linear_backward_weight, c->kernels[TO_NARROW], f.shared_active, at->dy,
           component_weight_gradients(c, at, NARROW), no_address);
    APPEND(list, linear_backward_weight, c->kernels[TO_WIDE], f.normed, f.shared_dwide,
           component_weight_gradients(c, at, WIDE), no_address);
}

const ComponentKind component_shared = {RECIPE_MLP, open, forward, backward_input, backward_weight, true};
