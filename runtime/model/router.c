/* Begins the second half of a layer with experts: n = norm(x), and a score of each expert for each token. The scores
   decide which experts get the token, and their gates. In a recipe the router is a part of attention, as in DeepSeek's
   training.

   The router's bias affects only the choice of experts and has no gradient. Instead, W counts the tokens of each expert
   in the bias's gradient buffer, and after the step the bias moves towards equal loads (stage_update). */

#include "runtime/model/experts.h"

enum { NORM, TO_LOGITS, ROUTE };

static Status open(Component *c, Error *error)
{
    const size_t rows = c->rows, hidden = c->config.hidden, experts = c->config.experts;
    component_parameter(c, (Parameter){"router.gain", hidden, false, 0, 1});
    component_parameter(c, (Parameter){"router.shift", hidden, false, 0, 0});
    component_parameter(c, (Parameter){"router.experts", hidden * experts, true, component_deviation(c), 0});
    component_tally(c, "router.bias", experts, TALLY_LOADS);
    component_tally(c, "router.balance_loss", 1, TALLY_SUM);
    const KernelShape norm = {.kind = KERNEL_NORM, .rows = rows, .columns = hidden};
    const KernelShape to_logits = {.kind = KERNEL_LINEAR, .rows = rows, .columns = hidden, .outputs = experts};
    const KernelShape route = {
        .kind = KERNEL_ROUTER, .rows = rows, .sequence = c->config.sequence, .routing = experts_routing(&c->config)};
    TRY(device_kernel(c->device, &norm, &c->kernels[NORM], error));
    TRY(device_kernel(c->device, &to_logits, &c->kernels[TO_LOGITS], error));
    TRY(device_kernel(c->device, &route, &c->kernels[ROUTE], error));
    const ExpertsFrame frame = experts_frame(c, &(PassAddresses){0});
    c->context = frame.context;
    c->stash = frame.stash + c->kernels[NORM]->context;
    c->gradient = frame.gradient;
    return STATUS_OK;
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, norm_forward, c->kernels[NORM], at->x, component_weights(c, at, ROUTER_GAIN),
           component_weights(c, at, ROUTER_SHIFT), f.normed, f.statistics);
    APPEND(list, linear_forward, c->kernels[TO_LOGITS], f.normed, component_weights(c, at, ROUTER_EXPERTS), no_address,
           no_address, f.logits);
    op_append(list, &(Op){.kind = OPERATION_route,
                          .kernel = c->kernels[ROUTE],
                          .scale = c->config.balance_loss,
                          .route = {f.logits, component_weights(c, at, ROUTER_BIAS), f.chosen, f.gates, f.balance}});
}

/* Adds a term to dnormed, the gradient of n: that from the logits, on which the gates and the balance loss depend.
   dnormed already has the terms from the dispatched rows and, if there are any, from the shared experts. */
static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    op_append(list, &(Op){.kind = OPERATION_route_backward,
                          .kernel = c->kernels[ROUTE],
                          .scale = c->loss_scale * c->config.balance_loss,
                          .route_backward = {f.logits, f.chosen, f.dgates, f.dlogits}});
    APPEND(list, linear_backward_input, c->kernels[TO_LOGITS], f.dlogits, component_weights(c, at, ROUTER_EXPERTS),
           f.drouted);
    op_append(list, &(Op){.kind = OPERATION_add, .count = c->rows * c->config.hidden, .add = {f.drouted, f.dnormed}});
    if (at->dx.base)
        APPEND(list, norm_backward_input, c->kernels[NORM], at->x, f.statistics, component_weights(c, at, ROUTER_GAIN),
               f.dnormed, at->dy, at->dx);
}

static void backward_weight(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    APPEND(list, linear_backward_weight, c->kernels[TO_LOGITS], f.normed, f.dlogits,
           component_weight_gradients(c, at, ROUTER_EXPERTS), no_address);
    APPEND(list, norm_backward_weight, c->kernels[NORM], at->x, f.statistics, f.dnormed,
           component_weight_gradients(c, at, ROUTER_GAIN), component_weight_gradients(c, at, ROUTER_SHIFT));
    APPEND(list, count_loads, c->kernels[ROUTE], f.begins, f.balance, component_weight_gradients(c, at, ROUTER_BIAS),
           component_weight_gradients(c, at, ROUTER_BALANCE));
}

const ComponentKind component_router = {RECIPE_ATTENTION, open, forward, backward_input, backward_weight, false};
