/* The input of the mlp model: rows of float, as they are. */

#include "runtime/model/component.h"

static Status open(Component *c, Error *error)
{
    (void)c, (void)error;
    return STATUS_OK;
}

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    return c->device->run->from_floats(c->device, c->rows * c->config.hidden, b->inputs, b->y, error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    (void)c, (void)b, (void)error; /* data has no gradient */
    return STATUS_OK;
}

const ComponentKind component_rows = {"rows", open, forward, backward_input, NULL};
