/* Maps bytes to vectors: a token table plus a position table, both learned. The first component of gpt and moe. */

#include "runtime/model/component.h"

enum { TOKENS, POSITIONS };

static Status open(Component *c, Error *error)
{
    (void)error;
    c->data_bytes = c->rows * sizeof(int32_t);
    component_parameter(
        c, (Parameter){"embedding.tokens", (size_t)c->config.vocabulary * c->config.hidden, true, 0.02, 0});
    component_parameter(
        c, (Parameter){"embedding.positions", (size_t)c->config.sequence * c->config.hidden, true, 0.01, 0});
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    op_append(list, &(Op){.kind = OPERATION_embedding_forward,
                          .rows = c->rows,
                          .columns = c->config.hidden,
                          .sequence = c->config.sequence,
                          .embedding_forward = {at->inputs, component_weights(c, at, TOKENS),
                                                component_weights(c, at, POSITIONS), at->y}});
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    op_append(list, &(Op){.kind = OPERATION_embedding_backward,
                          .rows = c->rows,
                          .columns = c->config.hidden,
                          .sequence = c->config.sequence,
                          .embedding_backward = {at->inputs, at->dy, component_weight_gradients(c, at, TOKENS),
                                                 component_weight_gradients(c, at, POSITIONS)}});
}

const ComponentKind component_embedding = {PART_EMBEDDING, open, forward, NULL, backward_weight, false};
