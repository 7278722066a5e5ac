#ifndef MODEL_EXPERTS_H
#define MODEL_EXPERTS_H

/* The second half of a layer with experts: y = x + shared(n) + sum over its experts of gate * expert(n), n = norm(x)
   (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Its components form a block and run in this order: router, dispatch,
   shared, experts, combine. They share one frame of intermediate results. */

#include "runtime/model/component.h"

/* The intermediate results of the block. T tokens with K experts each make T * K rows. No token is dropped, so T * K is
   also the most rows of one expert. */
typedef struct ExpertsFrame {
    /* saved from F to I */
    Address logits, gates;         /* [T, experts], [T, K] */
    Address chosen, places;        /* int32 [T, K]: experts, and their rows when rows are sorted by expert */
    Address wide, results;         /* [T K, 2 expert_hidden] before SwiGLU; [T K, hidden] */
    Address shared_wide, residual; /* [T, 2 shared] before their SwiGLU; [T, hidden] x + shared(n) */
    /* saved from F to W */
    Address normed, statistics; /* [T, hidden] n; kernel->context elements of the norm, the last in the stash */
    Address begins, balance;    /* int32 [experts + 1]: first row of each expert; [1] the balance loss */
    Address rows, active;       /* [T K, hidden] n sorted by expert; [T K, expert_hidden] after SwiGLU */
    Address shared_active;
    /* within I */
    /* [T K, hidden], [T, K], [T, hidden] from the shared experts, [T, hidden] from the router */
    Address drows, dgates, dshared, drouted;
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

extern const ComponentKind component_router, component_dispatch, component_shared, component_experts, component_combine;

#endif
