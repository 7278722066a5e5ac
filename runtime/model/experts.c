/* The routed experts of a layer: down(silu(gate(n)) * up(n)) without biases. One matrix holds gate and up side by side.
   Each row of tokens uses the matrices of its expert. */

#include "runtime/model/experts.h"

enum { WIDE, NARROW }; /* parameters */
enum { TO_WIDE, SWIGLU, TO_NARROW };

static Status open(Component *c, Error *error)
{
    const size_t hidden = c->config.hidden, width = c->config.expert_hidden, experts = c->config.experts;
    const size_t routed = c->rows * c->config.experts_per_token;
    const Routing routing = experts_routing(&c->config);
    component_parameter(c, (Parameter){"experts.wide", experts * hidden * 2 * width, true, component_deviation(c), 0});
    component_parameter(
        c, (Parameter){"experts.narrow", experts * width * hidden, true, component_residual_deviation(c), 0});
    const KernelShape to_wide = {
        .kind = KERNEL_GROUPED, .rows = routed, .columns = hidden, .outputs = 2 * width, .routing = routing};
    const KernelShape swiglu = {.kind = KERNEL_SWIGLU, .rows = routed, .columns = width};
    const KernelShape to_narrow = {
        .kind = KERNEL_GROUPED, .rows = routed, .columns = width, .outputs = hidden, .routing = routing};
    TRY(device_kernel(c->device, &to_wide, &c->kernels[TO_WIDE], error));
    TRY(device_kernel(c->device, &swiglu, &c->kernels[SWIGLU], error));
    return device_kernel(c->device, &to_narrow, &c->kernels[TO_NARROW], error);
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, grouped_forward, c->kernels[TO_WIDE], f.rows, component_weights(c, at, WIDE), f.begins, f.wide);
    APPEND(list, swiglu_forward, c->kernels[SWIGLU], f.wide, f.active);
    APPEND(list, grouped_forward, c->kernels[TO_NARROW], f.active, component_weights(c, at, NARROW), f.begins,
           f.results);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, grouped_backward_input, c->kernels[TO_NARROW], f.dresults, component_weights(c, at, NARROW), f.begins,
           f.dactive);
    APPEND(list, swiglu_backward, c->kernels[SWIGLU], f.wide, f.dactive, f.dwide);
    APPEND(list, grouped_backward_input, c->kernels[TO_WIDE], f.dwide, component_weights(c, at, WIDE), f.begins,
           f.drows);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, grouped_backward_weight, c->kernels[TO_NARROW], f.active, f.dresults, f.begins,
           component_weight_gradients(c, at, NARROW));
    APPEND(list, grouped_backward_weight, c->kernels[TO_WIDE], f.rows, f.dwide, f.begins,
           component_weight_gradients(c, at, WIDE));
}

const ComponentKind component_experts = {RECIPE_MLP, open, forward, backward_input, backward_weight, true};
