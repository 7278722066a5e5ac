#ifndef MODEL_EXPERTS_H
#define MODEL_EXPERTS_H

/* The second half of a layer with experts: y = x + shared(n) + sum over its experts of gate * expert(n), n = norm(x)
   (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Its components form a block and run in this order: router, dispatch,
   shared, experts, combine. They share one frame of intermediate results. */

#include "runtime/model/component.h"

/* The intermediate results of the block. T tokens with K experts each make T * K rows. No token is dropped, so T * K is
   also the most rows of one expert. The experts of this stage get at most R rows: T * K if it has all of them; rows and
   results then move nowhere, and `sent` is `rows`, `made` is `results`. If a group shares the experts, R is
   experts_room. */
typedef struct ExpertsFrame {
    /* saved from F to I */
    Address logits, gates;  /* [T, experts], [T, K] */
    Address chosen, places; /* int32 [T, K]: experts, and their rows when rows are sorted by expert */
    Address wide, results;  /* [R, 2 expert_hidden] before SwiGLU; [T K, hidden] */
    Address made, sent;     /* [R, hidden] results of the experts here; [T K, hidden] n sorted by expert */
    /* int32 [experts] rows of each expert; of each block here. Only with a group */
    Address counts_sent, counts_received;
    Address shared_wide, residual; /* [T, 2 shared] before their SwiGLU; [T, hidden] x + shared(n) */
    /* saved from F to W */
    Address normed, statistics; /* [T, hidden] n; kernel->context elements of the norm, the last in the stash */
    Address begins, balance;    /* int32 [experts + 1]: first row of each expert; [1] the balance loss */
    Address held;               /* int32 [experts + 1]: first row of each block that the experts here get */
    Address rows, active;       /* [R, hidden] in the order of `held`; [R, expert_hidden] after SwiGLU */
    Address shared_active;
    /* within I */
    /* [T K, hidden], [T, K], [T, hidden] from the shared experts, [T, hidden] from the router */
    Address drows, dgates, dshared, drouted;
    Address dmade, dsent;            /* [R, hidden] gradient of `rows`; [T K, hidden] that of the results */
    Address dactive, shared_dactive; /* like active, shared_active */
    /* saved from I to W */
    Address dresults, dwide, shared_dwide; /* like results, wide, shared_wide */
    Address dlogits, dnormed;
    size_t context, stash, gradient; /* total elements; stash: without the statistics */
} ExpertsFrame;

ExpertsFrame experts_frame(const Component *component, const PassAddresses *at);

/* Parameters of the router. W does not compute gradients for the last two but counts in them (TALLY_LOADS,
   TALLY_SUM). */
enum { ROUTER_GAIN, ROUTER_SHIFT, ROUTER_EXPERTS, ROUTER_BIAS, ROUTER_BALANCE };

/* The total width of the shared experts, which are computed as one. */
size_t shared_width(const ModelConfig *config);
Routing experts_routing(const ModelConfig *config);
/* How many experts of a layer this stage holds: all, or those of its member of the group. */
uint32_t experts_held(const ModelConfig *config);
/* The most rows that these experts can get in a pass, or that are planned for (ModelConfig.expert_rows). */
size_t experts_room(const Component *component);
/* For `open`: adds an all-to-all of the component. `what`: its name in messages. */
Status experts_exchange(Component *component, int number, const char *what, bool back, Error *error);
/* Append the post of an all-to-all of rows from x to y, and its wait. */
void experts_send_rows(const Component *component, const ExpertsFrame *frame, int exchange, Address x, Address y,
                       OpList *list);

extern const ComponentKind component_router, component_dispatch, component_shared, component_experts, component_combine;

#endif
