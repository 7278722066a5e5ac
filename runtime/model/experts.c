/* The routed experts of a layer: down(silu(gate(n)) * up(n)) without biases. One matrix holds gate and up side by side.
   Each row uses the matrices of its expert. */

#include "runtime/model/experts.h"

enum { WIDE, NARROW }; /* parameters */
enum { TO_WIDE, SWIGLU, TO_NARROW };

/* Adds a parameter with a matrix of `each` elements for each physical expert that this stage holds. */
static void add_parameter(Component *c, const char *name, size_t each, double deviation)
{
    c->of_experts[c->parameter_count] = c->config.experts * each;
    component_parameter(c, (Parameter){name, experts_held(&c->config) * each, true, deviation, 0});
}

static Status open(Component *c, Error *error)
{
    const size_t hidden = c->config.hidden, width = c->config.expert_hidden, rows = experts_room(c);
    Routing routing = experts_routing(&c->config);
    add_parameter(c, "experts.wide", hidden * 2 * width, component_deviation(c));
    add_parameter(c, "experts.narrow", width * hidden, component_residual_deviation(c));
    routing.experts = experts_held(&c->config);
    const size_t sources = experts_physical(&c->config) / routing.experts;
    const KernelShape to_wide = {.kind = KERNEL_GROUPED,
                                 .rows = rows,
                                 .columns = hidden,
                                 .outputs = 2 * width,
                                 .routing = routing,
                                 .sources = sources};
    const KernelShape swiglu = {
        .kind = KERNEL_SWIGLU, .rows = rows, .columns = width, .routing = routing, .sources = sources};
    const KernelShape to_narrow = {.kind = KERNEL_GROUPED,
                                   .rows = rows,
                                   .columns = width,
                                   .outputs = hidden,
                                   .routing = routing,
                                   .sources = sources};
    TRY(device_kernel(c->device, &to_wide, &c->kernels[TO_WIDE], error));
    TRY(device_kernel(c->device, &swiglu, &c->kernels[SWIGLU], error));
    return device_kernel(c->device, &to_narrow, &c->kernels[TO_NARROW], error);
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, grouped_forward, c->kernels[TO_WIDE], f.rows, component_weights(c, at, WIDE), f.held, f.wide);
    APPEND(list, swiglu_forward, c->kernels[SWIGLU], f.wide, f.held, f.active);
    APPEND(list, grouped_forward, c->kernels[TO_NARROW], f.active, component_weights(c, at, NARROW), f.held, f.made);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, grouped_backward_input, c->kernels[TO_NARROW], f.dresults, component_weights(c, at, NARROW), f.held,
           f.dactive);
    APPEND(list, swiglu_backward, c->kernels[SWIGLU], f.wide, f.dactive, f.held, f.dwide);
    APPEND(list, grouped_backward_input, c->kernels[TO_WIDE], f.dwide, component_weights(c, at, WIDE), f.held, f.dmade);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, grouped_backward_weight, c->kernels[TO_NARROW], f.active, f.dresults, f.held,
           component_weight_gradients(c, at, NARROW));
    APPEND(list, grouped_backward_weight, c->kernels[TO_WIDE], f.rows, f.dwide, f.held,
           component_weight_gradients(c, at, WIDE));
}

const ComponentKind component_experts = {RECIPE_MLP, open, forward, backward_input, backward_weight, true};
