/* The second half of a pre-norm block: y = x + down(gelu(up(norm(x)))). The hidden layer is four times as wide. */

#include "runtime/model/component.h"

enum { GAIN, SHIFT, UP, UP_BIAS, DOWN, DOWN_BIAS };
enum { NORM, TO_WIDE, GELU, TO_NARROW };

/* Addresses of intermediate results of a microbatch. */
typedef struct Parts {
    Address wide;                       /* saved from F to I */
    Address normed, statistics, active; /* saved from F to W; I reads statistics, too */
    Address dwide, dnormed;             /* saved from I to W */
} Parts;

static Parts parts_of(const Component *c, const PassAddresses *at)
{
    const size_t rows = c->rows, hidden = c->config.hidden;
    return (Parts){
        .wide = at->context,
        .normed = at->stash,
        .active = component_at(c, at->stash, component_round(rows * hidden)),
        .statistics = component_at(c, at->stash, component_round(rows * hidden) + component_round(4 * rows * hidden)),
        .dwide = at->gradient,
        .dnormed = component_at(c, at->gradient, component_round(4 * rows * hidden)),
    };
}

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, wide = 4 * hidden;
    component_parameter(c, (Parameter){"mlp.gain", hidden, false, 0, 1});
    component_parameter(c, (Parameter){"mlp.shift", hidden, false, 0, 0});
    component_parameter(c, (Parameter){"mlp.up", hidden * wide, true, component_deviation(c), 0});
    component_parameter(c, (Parameter){"mlp.up_bias", wide, false, 0, 0});
    component_parameter(c, (Parameter){"mlp.down", wide * hidden, true, component_residual_deviation(c), 0});
    component_parameter(c, (Parameter){"mlp.down_bias", hidden, false, 0, 0});
    const KernelShape norm = {.kind = KERNEL_NORM, .rows = rows, .columns = hidden};
    const KernelShape to_wide = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = wide};
    const KernelShape gelu = {.kind = KERNEL_GELU, .rows = rows, .columns = wide};
    const KernelShape to_narrow = {.kind = KERNEL_LINEAR, .rows = rows, .columns = wide, .outputs = hidden};
    TRY(device_kernel(c->device, &norm, &c->kernels[NORM], error));
    TRY(device_kernel(c->device, &to_wide, &c->kernels[TO_WIDE], error));
    TRY(device_kernel(c->device, &gelu, &c->kernels[GELU], error));
    TRY(device_kernel(c->device, &to_narrow, &c->kernels[TO_NARROW], error));
    c->context = component_round(rows * wide);
    c->stash =
        component_round(rows * hidden) + component_round(rows * wide) + component_round(c->kernels[NORM]->context);
    c->gradient = component_round(rows * wide) + component_round(rows * hidden);
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, norm_forward, c->kernels[NORM], at->x, component_weights(c, at, GAIN), component_weights(c, at, SHIFT),
           p.normed, p.statistics);
    op_append(list, &(Op){.kind = OPERATION_linear_gelu_forward,
                          .kernel = c->kernels[TO_WIDE],
                          .gelu = c->kernels[GELU],
                          .linear_gelu_forward = {p.normed, component_weights(c, at, UP),
                                                  component_weights(c, at, UP_BIAS), p.wide, p.active}});
    APPEND(list, linear_forward, c->kernels[TO_NARROW], p.active, component_weights(c, at, DOWN),
           component_weights(c, at, DOWN_BIAS), at->x, at->y);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    op_append(list, &(Op){.kind = OPERATION_linear_gelu_backward_input,
                          .kernel = c->kernels[TO_NARROW],
                          .gelu = c->kernels[GELU],
                          .linear_gelu_backward_input = {at->dy, component_weights(c, at, DOWN), p.wide, p.dwide}});
    APPEND(list, linear_backward_input, c->kernels[TO_WIDE], p.dwide, component_weights(c, at, UP), p.dnormed);
    if (at->dx.base)
        APPEND(list, norm_backward_input, c->kernels[NORM], at->x, p.statistics, component_weights(c, at, GAIN),
               p.dnormed, at->dy, at->dx);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const Parts p = parts_of(c, at);
    APPEND(list, linear_backward_weight, c->kernels[TO_NARROW], p.active, at->dy,
           component_weight_gradients(c, at, DOWN), component_weight_gradients(c, at, DOWN_BIAS));
    APPEND(list, linear_backward_weight, c->kernels[TO_WIDE], p.normed, p.dwide, component_weight_gradients(c, at, UP),
           component_weight_gradients(c, at, UP_BIAS));
    APPEND(list, norm_backward_weight, c->kernels[NORM], at->x, p.statistics, p.dnormed,
           component_weight_gradients(c, at, GAIN), component_weight_gradients(c, at, SHIFT));
}

const ComponentKind component_mlp = {RECIPE_MLP, open, forward, backward_input, backward_weight, false};
