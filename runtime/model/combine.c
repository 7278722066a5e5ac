/* The last component of a layer with experts: y = x + the result of the shared experts + the sum of gate * result over
   the token's experts. The backward computes the gradients of the gates and of the results, and sends the gradients of
   the results to the experts. */

#include "runtime/model/experts.h"

enum { PERMUTE };
enum { BACK, OUT }; /* indices in Component.exchanges */

static Status open(Component *c, Error *error)
{
    const KernelShape permute = {
        .kind = KERNEL_PERMUTE, .rows = c->rows, .columns = c->config.hidden, .routing = experts_routing(&c->config)};
    TRY(experts_exchange(c, BACK, "combine", true, RECIPE_F, error));
    TRY(experts_exchange(c, OUT, "the gradient's dispatch from combine", false, RECIPE_B, error));
    return device_kernel(c->device, &permute, &c->kernels[PERMUTE], error);
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    experts_send_rows(c, &f, BACK, f.made, f.results, list);
    APPEND(list, unpermute, c->kernels[PERMUTE], f.results, f.places, f.gates,
           c->config.shared_experts ? f.residual : at->x, at->y);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, unpermute_backward, c->kernels[PERMUTE], f.results, f.places, f.gates, at->dy, f.dsent, f.dgates);
    experts_send_rows(c, &f, OUT, f.dsent, f.dresults, list);
}

const ComponentKind component_combine = {RECIPE_COMBINE, open, forward, backward_input, NULL, true};
