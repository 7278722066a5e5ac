#ifndef MODEL_EXPERTS_H
#define MODEL_EXPERTS_H

/* The second half of a layer with experts: y = x + shared(n) + sum over its experts of gate * expert(n), n = norm(x)
   (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Its components form a block and run in this order: router, dispatch,
   shared, experts, combine. They share one frame of intermediate results. */

#include "runtime/model/component.h"

/* The intermediate results of the block. T tokens with K experts each make T * K rows. No token is dropped, so the
   experts of a stage may get all rows. R is the most rows that the experts of this stage can get (experts_room): T * K
   if the stage holds all experts. Then no rows are sent: `sent` is `rows`, `made` is `results`, `held` is `begins`,
   `dmade` is `drows`, and `dsent` is `dresults`. */
typedef struct ExpertsFrame {
    /* saved from F to I */
    Address logits, gates; /* [T, experts], [T, K] */
    /* int32 [T, K] each. chosen: the experts of each token. placed: the physical experts that compute them (the same
       memory as `chosen` if no expert has copies). places: the index of each row when rows are sorted by physical
       expert */
    Address chosen, placed, places;
    /* [R, 2 expert_hidden] input of SwiGLU; [T K, hidden] results of the experts, as the tokens' member gets them */
    Address wide, results;
    /* [R, hidden] results of the experts held here; [T K, hidden] rows of n, sorted by expert, as this member sends
       them. In a group `sent` is the memory of `results`: the rows have been sent when the results arrive */
    Address made, sent;
    /* int32 [physical experts] each: the number of rows that this member sends to each physical expert; the number of
       rows in each block that it receives. Only with a group */
    Address counts_sent, counts_received;
    /* [T, 2 shared_width] input of the shared experts' SwiGLU; [T, hidden] x + shared(n) */
    Address shared_wide, residual;
    /* saved from F to W; I reads some of them, too */
    Address normed, statistics; /* [T, hidden] n; what the norm saves (kernel->context elements), last in the stash */
    /* int32 [physical experts + 1]: first row of each physical expert in `sent`; [1] the balance loss */
    Address begins, balance;
    Address held; /* int32 [physical experts + 1]: first row of each block of the experts held here */
    /* [R, hidden] input of the experts held here, in the order of `held`; [R, expert_hidden] output of SwiGLU */
    Address rows, active;
    Address shared_active;
    /* within I */
    /* [T K, hidden] gradient of `sent`; [T, K]; the gradients of n from the shared experts and from the router,
       [T, hidden] each */
    Address drows, dgates, dshared, drouted;
    /* [R, hidden] gradient of `rows`; [T K, hidden] gradient of `results`, in a group in the memory of `drows` */
    Address dmade, dsent;
    Address dactive, shared_dactive; /* like active, shared_active */
    /* saved from I to W */
    Address dresults, dwide, shared_dwide; /* [R, hidden] gradient of `made`; like wide, shared_wide */
    Address dlogits, dnormed;
    size_t context, stash, gradient; /* total elements; stash: without the statistics */
} ExpertsFrame;

ExpertsFrame experts_frame(const Component *component, const PassAddresses *at);

/* Indices of the router's parameters. For the last two, W computes no gradients: their gradient buffers hold counts
   (TALLY_LOADS) and a sum (TALLY_SUM). */
enum { ROUTER_GAIN, ROUTER_SHIFT, ROUTER_EXPERTS, ROUTER_BIAS, ROUTER_BALANCE };

/* The total hidden width of the shared experts, which are computed as one expert. */
size_t shared_width(const ModelConfig *config);
/* Whether layers with experts have ExpertCopies. */
bool experts_have_copies(const ModelConfig *config);
Routing experts_routing(const ModelConfig *config);
/* The number of physical experts of a layer: its experts and their further copies (ExpertGroup.replicas). */
uint32_t experts_physical(const ModelConfig *config);
/* The number of physical experts of a layer that this stage holds: all, or those of its member of the group. */
uint32_t experts_held(const ModelConfig *config);
/* The most rows that the experts of this stage can get in a pass; if ModelConfig.expert_rows limits them, that
   limit. */
size_t experts_room(const Component *component);
/* For `open`: makes all-to-all `number` of the component; nothing without a group. `what`: its name in messages.
   `back`: as in GroupExchange. `pass`: RECIPE_F or RECIPE_B. STATUS_RUN_FAILED: out of memory. */
Status experts_exchange(Component *component, int number, const char *what, bool back, RecipePass pass, Error *error);
/* Appends the post of an all-to-all that sends rows from x to y, and its wait; nothing without a group. */
void experts_send_rows(const Component *component, const ExpertsFrame *frame, int exchange, Address x, Address y,
                       OpList *list);

extern const ComponentKind component_router, component_dispatch, component_shared, component_experts, component_combine;

#endif
