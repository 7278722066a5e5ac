#ifndef MODEL_EXPERTS_H
#define MODEL_EXPERTS_H

/* The second half of a layer with experts: y = x + shared(n) + sum over its experts of gate * expert(n), n = norm(x)
   (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Its components, a block, run one after the other: router, dispatch,
   shared, experts, combine. All of them find what they hand each other in one frame. */

#include "runtime/model/component.h"

/* What the block keeps: T tokens with K experts each make T * K rows. No token is dropped, so that is also the most
   that one expert gets. */
typedef struct ExpertsFrame {
    /* from F to I */
    Address logits, gates;         /* [T, experts], [T, K] */
    Address chosen, places;        /* int32 [T, K]: experts, and rows in the order of experts */
    Address wide, results;         /* [T K, 2 expert_hidden] before SwiGLU; [T K, hidden] */
    Address shared_wide, residual; /* the same of the shared experts; [T, hidden] x + shared(n) */
    /* from F to W */
    Address normed, statistics; /* [T, hidden] n; what the norm's kernel keeps, behind all the rest */
    Address begins, balance;    /* int32 [experts + 1]: rows at which experts begin; [1] the balance loss */
    Address rows, active;       /* [T K, hidden] n in the order of experts; [T K, expert_hidden] after SwiGLU */
    Address shared_active;
    /* within I */
    Address drows, dgates, dshared, drouted; /* [T K, hidden], [T, K], [T, hidden] by the shared, by the router */
    Address dactive, shared_dactive;         /* as active, shared_active */
    /* from I to W */
    Address dresults, dwide, shared_dwide; /* as results, wide, shared_wide */
    Address dlogits, dnormed;
    size_t context, stash, gradient; /* elements of all of it; stash: without the statistics */
} ExpertsFrame;

ExpertsFrame experts_frame(const Component *component, const PassAddresses *at);

/* Parameters of the router. The gradients of the last two are no gradients: W counts in them (TALLY_LOADS, _SUM). */
enum { ROUTER_GAIN, ROUTER_SHIFT, ROUTER_EXPERTS, ROUTER_BIAS, ROUTER_BALANCE };

/* The width of all shared experts together, which are one. */
size_t shared_width(const ModelConfig *config);
Routing experts_routing(const ModelConfig *config);

extern const ComponentKind component_router, component_dispatch, component_shared, component_experts, component_combine;

#endif
