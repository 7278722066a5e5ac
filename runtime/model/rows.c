/* The first component of the mlp model: converts the input rows from float to the COMPUTE_TYPE. */

#include "runtime/model/component.h"

static Status open(Component *c, Error *error)
{
    (void)error;
    c->data_bytes = c->rows * c->config.hidden * sizeof(float);
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    op_append(
        list,
        &(Op){.kind = OPERATION_from_floats, .count = c->rows * c->config.hidden, .from_floats = {at->inputs, at->y}});
}

const ComponentKind component_rows = {PART_ROWS, open, forward, NULL, NULL, false};
