/* Copies each token to the rows of its experts; the rows are sorted by expert, then by token. If experts have copies,
   each row is first assigned to one of the copies of its expert, and the rows are sorted by copy. If a group shares the
   experts, the rows then go to the members that hold them. The backward is a combine without gates: the gradients
   return to their tokens and are added up, also to the gradient from the shared experts if there are any. */

#include "runtime/model/experts.h"

enum { ROUTE, PERMUTE };
enum { COUNTS, OUT, BACK }; /* indices in Component.exchanges */

static Status open(Component *c, Error *error)
{
    KernelShape route = {
        .kind = KERNEL_ROUTER, .rows = c->rows, .sequence = c->config.sequence, .routing = experts_routing(&c->config)};
    route.routing.experts = experts_physical(&c->config);
    const KernelShape permute = {
        .kind = KERNEL_PERMUTE, .rows = c->rows, .columns = c->config.hidden, .routing = experts_routing(&c->config)};
    TRY(device_kernel(c->device, &route, &c->kernels[ROUTE], error));
    TRY(device_kernel(c->device, &permute, &c->kernels[PERMUTE], error));
    if (experts_have_copies(&c->config)) {
        c->copies = group_make_copies(c->config.experts, route.routing.experts, (uint32_t)c->config.expert_group->self);
        if (!c->copies)
            return error_set(error, STATUS_RUN_FAILED, "out of memory");
    }
    TRY(experts_exchange(c, COUNTS, "dispatch", false, RECIPE_F, error));
    TRY(experts_exchange(c, OUT, "dispatch", false, RECIPE_F, error));
    return experts_exchange(c, BACK, "the gradient's way back from dispatch", true, RECIPE_B, error);
}

static void forward(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    if (c->copies)
        op_append(list, &(Op){.kind = OPERATION_choose_copies,
                              .copies = c->copies,
                              .count = c->rows * c->config.experts_per_token,
                              .choose_copies = {f.chosen, f.placed}});
    APPEND(list, group_rows, c->kernels[ROUTE], f.placed, f.places, f.begins);
    if (c->exchanges[COUNTS]) /* the counts are exchanged while permute copies the rows */
        op_append(list, &(Op){.kind = OPERATION_counts_post,
                              .exchange = c->exchanges[COUNTS],
                              .counts_post = {f.begins, f.counts_sent, f.counts_received}});
    APPEND(list, permute, c->kernels[PERMUTE], f.normed, f.places, f.sent);
    if (c->exchanges[COUNTS])
        op_append(list, &(Op){.kind = OPERATION_counts_wait,
                              .exchange = c->exchanges[COUNTS],
                              .counts_wait = {f.counts_sent, f.counts_received, f.held}});
    experts_send_rows(c, &f, OUT, f.sent, f.rows, list);
}

static void backward_input(const Component *c, const PassAddresses *at, OpList *list)
{
    const ExpertsFrame f = experts_frame(c, at);
    experts_send_rows(c, &f, BACK, f.dmade, f.drows, list);
    APPEND(list, unpermute, c->kernels[PERMUTE], f.drows, f.places, no_address,
           c->config.shared_experts ? f.dshared : no_address, f.dnormed);
}

const ComponentKind component_dispatch = {RECIPE_DISPATCH, open, forward, backward_input, NULL, true};
