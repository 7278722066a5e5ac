/* The end of the mlp model: the mean squared error of its rows. F leaves their gradient, so that I needs no targets. */

#include "runtime/model/component.h"

static Status open(Component *c, Error *error)
{
    (void)error;
    c->stash = component_round(c->rows * c->config.hidden);
    return STATUS_OK;
}

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    const DeviceTable *run = c->device->run;
    const size_t count = c->rows * c->config.hidden;
    if (b->outputs)
        TRY(run->to_floats(c->device, count, b->x, b->outputs, error));
    return run->squared_error(c->device, count, b->x, b->targets, c->loss_scale, b->stash, b->loss, error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    return b->dx ? c->device->run->copy(c->device, c->rows * c->config.hidden * c->device->run->size[ELEMENTS],
                                        b->stash, b->dx, error)
                 : STATUS_OK;
}

const ComponentKind component_squared_error = {"squared_error", open, forward, backward_input, NULL};
