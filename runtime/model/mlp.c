/* The second half of a pre-norm block: y = x + down(gelu(up(norm(x)))), four times as wide inside. */

#include "runtime/model/component.h"

enum { GAIN, SHIFT, UP, UP_BIAS, DOWN, DOWN_BIAS };
enum { NORM, TO_WIDE, GELU, TO_NARROW };

/* Kept from F to I, from F to W, from I to W. */
typedef struct Parts {
    void *wide;
    void *normed, *statistics, *active;
    void *dwide, *dnormed;
} Parts;

static Parts parts_of(const Component *c, const PassBuffers *b)
{
    const size_t rows = c->rows, hidden = c->config.hidden;
    return (Parts){
        .wide = b->context,
        .normed = b->stash,
        .active = component_at(c, b->stash, component_round(rows * hidden)),
        .statistics = component_at(c, b->stash, component_round(rows * hidden) + component_round(4 * rows * hidden)),
        .dwide = b->gradient,
        .dnormed = component_at(c, b->gradient, component_round(4 * rows * hidden)),
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

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->norm_forward(c->device, c->kernels[NORM], b->x, component_weights(c, b, GAIN),
                          component_weights(c, b, SHIFT), p.normed, p.statistics, error));
    TRY(run->linear_gelu_forward(c->device, c->kernels[TO_WIDE], c->kernels[GELU], p.normed,
                                 component_weights(c, b, UP), component_weights(c, b, UP_BIAS), p.wide, p.active,
                                 error));
    return run->linear_forward(c->device, c->kernels[TO_NARROW], p.active, component_weights(c, b, DOWN),
                               component_weights(c, b, DOWN_BIAS), b->x, b->y, error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->linear_gelu_backward_input(c->device, c->kernels[TO_NARROW], c->kernels[GELU], b->dy,
                                        component_weights(c, b, DOWN), p.wide, p.dwide, error));
    TRY(run->linear_backward_input(c->device, c->kernels[TO_WIDE], p.dwide, component_weights(c, b, UP), p.dnormed,
                                   error));
    return b->dx ? run->norm_backward_input(c->device, c->kernels[NORM], b->x, p.statistics,
                                            component_weights(c, b, GAIN), p.dnormed, b->dy, b->dx, error)
                 : STATUS_OK;
}

static Status backward_weight(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const Parts p = parts_of(c, b);
    TRY(run->linear_backward_weight(c->device, c->kernels[TO_NARROW], p.active, b->dy,
                                    component_weight_gradients(c, b, DOWN), component_weight_gradients(c, b, DOWN_BIAS),
                                    error));
    TRY(run->linear_backward_weight(c->device, c->kernels[TO_WIDE], p.normed, p.dwide,
                                    component_weight_gradients(c, b, UP), component_weight_gradients(c, b, UP_BIAS),
                                    error));
    return run->norm_backward_weight(c->device, c->kernels[NORM], b->x, p.statistics, p.dnormed,
                                     component_weight_gradients(c, b, GAIN), component_weight_gradients(c, b, SHIFT),
                                     error);
}

const ComponentKind component_mlp = {"mlp", open, forward, backward_input, backward_weight};
