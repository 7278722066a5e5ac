/* Bytes into vectors: a table of tokens plus a table of positions, both learned. First of a gpt. */

#include "runtime/model/component.h"

enum { TOKENS, POSITIONS };

static Status open(Component *c, Error *error)
{
    (void)error;
    component_parameter(
        c, (Parameter){"embedding.tokens", (size_t)c->config.vocabulary * c->config.hidden, true, 0.02, 0});
    component_parameter(
        c, (Parameter){"embedding.positions", (size_t)c->config.sequence * c->config.hidden, true, 0.01, 0});
    return STATUS_OK;
}

static Status forward(const Component *c, const PassBuffers *b, Error *error)
{
    return c->device->run->embedding_forward(c->device, c->rows, c->config.hidden, c->config.sequence, b->inputs,
                                             component_weights(c, b, TOKENS), component_weights(c, b, POSITIONS), b->y,
                                             error);
}

static Status backward_input(const Component *c, const PassBuffers *b, Error *error)
{
    (void)c, (void)b, (void)error; /* tokens have no gradient */
    return STATUS_OK;
}

static Status backward_weight(const Component *c, const PassBuffers *b, Error *error)
{
    return c->device->run->embedding_backward(c->device, c->rows, c->config.hidden, c->config.sequence, b->inputs,
                                              b->dy, component_weight_gradients(c, b, TOKENS),
                                              component_weight_gradients(c, b, POSITIONS), error);
}

const ComponentKind component_embedding = {"embedding", open, forward, backward_input, backward_weight};
