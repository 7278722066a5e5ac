/* The last component of the mlp model: the mean squared error of its rows. F saves the gradient of the rows, so I needs
   no targets. */

#include "runtime/model/component.h"

static Status open(Component *c, Error *error)
{
    (void)error;
    const size_t count = c->rows * c->config.hidden;
    c->stash = component_round(count);
    c->data_bytes = count * sizeof(float);
    c->outputs = count;
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const size_t count = c->rows * c->config.hidden;
    op_append(list, &(Op){.kind = OPERATION_to_floats, .count = count, .to_floats = {at->x, at->outputs}});
    op_append(list, &(Op){.kind = OPERATION_squared_error,
                          .count = count,
                          .scale = c->loss_scale,
                          .squared_error = {at->x, at->targets, at->stash, at->loss}});
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    if (at->dx.base)
        op_append(list, &(Op){.kind = OPERATION_copy,
                              .count = c->rows * c->config.hidden * c->device->run->size[COMPUTE_TYPE],
                              .copy = {at->stash, at->dx}});
}

const ComponentKind component_squared_error = {PART_SQUARED_ERROR, open, forward, backward_input, NULL, false};
