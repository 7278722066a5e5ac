/* Copies each token to the rows of its experts, sorted by expert, then by token. All experts are on this rank, so
   nothing is sent. Its backward is a combine without gates. */

#include "runtime/model/experts.h"

enum { ROUTE, PERMUTE };

static Status open(Component *c, Error *error)
{
    const KernelShape route = {
        .kind = KERNEL_ROUTER, .rows = c->rows, .sequence = c->config.sequence, .routing = experts_routing(&c->config)};
    const KernelShape permute = {
        .kind = KERNEL_PERMUTE, .rows = c->rows, .columns = c->config.hidden, .routing = experts_routing(&c->config)};
    TRY(device_kernel(c->device, &route, &c->kernels[ROUTE], error));
    return device_kernel(c->device, &permute, &c->kernels[PERMUTE], error);
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, group_rows, c->kernels[ROUTE], f.chosen, f.places, f.begins);
    APPEND(list, permute, c->kernels[PERMUTE], f.normed, f.places, f.rows);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, unpermute, c->kernels[PERMUTE], f.drows, f.places, no_address,
           c->config.shared_experts ? f.dshared : no_address, f.dnormed);
}

const ComponentKind component_dispatch = {RECIPE_DISPATCH, open, forward, backward_input, NULL, true};
