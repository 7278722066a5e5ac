#pragma once

/* The second half of a layer with experts: y = x + shared(n) + sum of gate * expert(n) over the token's experts,
   n = norm(x) (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). Its components form a block and run in this order:
   router, dispatch, shared, experts, combine. They share one frame of intermediate results. */

#include "runtime/model/component.h"

/* The intermediate results of the block. T tokens with K experts each make T * K rows. No token is dropped. R is the
   number of rows for which the experts of this stage have room (experts_room). "Member" is a member of an expert group
   (group.h). Without a group, R is T * K and no rows are sent: `sent` is `rows`, `made` is `results`, `held` is
   `begins`, `dmade` is `drows`, and `dsent` is `dresults`. */
typedef struct ExpertsFrame {
    /* down to `residual`: saved from F to I */
    Address logits, gates; /* [T, experts], [T, K] */
    /* int32 [T, K] each. chosen: the experts of each token. placed: the physical experts that compute them (the same
       memory as `chosen` if no expert has copies). places: the index of each row when all rows are sorted by physical
       expert */
    Address chosen, placed, places;
    /* wide: [R, 2 expert_hidden] input of SwiGLU. results: [T K, hidden] results of the experts for this member's
       tokens, in the order of `sent` */
    Address wide, results;
    /* made: [R, hidden] results of the experts held here. sent: [T K, hidden] rows of n, sorted by physical expert, as
       this member sends them. In a group `sent` is in the memory of `results`: the rows have been sent when the results
       arrive */
    Address made, sent;
    /* only in a group; int32 [physical experts] each. counts_sent: the number of rows that this member sends to each
       physical expert. counts_received: the number of rows in each block that it receives */
    Address counts_sent, counts_received;
    /* shared_wide: [T, 2 shared_width] input of the shared experts' SwiGLU. residual: [T, hidden] x + shared(n) */
    Address shared_wide, residual;
    /* down to `shared_active`: saved from F to W; I reads some of them, too */
    /* normed: [T, hidden] n. statistics: what the norm saves (kernel->context elements); last in the stash */
    Address normed, statistics;
    /* begins: int32 [physical experts + 1], the first row of each physical expert in `sent`. balance: [1], the balance
       loss */
    Address begins, balance;
    Address held; /* int32 [physical experts + 1]: first row of each block that the experts held here get */
    /* rows: [R, hidden] input of the experts held here, in the order of `held`. active: [R, expert_hidden] output of
       SwiGLU */
    Address rows, active;
    Address shared_active;
    /* down to `shared_dactive`: used only within I */
    /* drows: [T K, hidden] gradient of `sent`. dgates: [T, K]. dshared, drouted: [T, hidden], the gradients of n from
       the shared experts and from the router */
    Address drows, dgates, dshared, drouted;
    /* dmade: [R, hidden] gradient of `rows`. dsent: [T K, hidden] gradient of `results`; in a group in the memory of
       `drows` */
    Address dmade, dsent;
    Address dactive, shared_dactive; /* gradients of active, shared_active */
    /* the other addresses: saved from I to W */
    Address dresults, dwide, shared_dwide; /* gradients of `made`, `wide`, `shared_wide` */
    Address dlogits, dnormed;
    /* elements of each buffer; stash without `statistics`, whose size only the norm's kernel knows */
    size_t context, stash, gradient;
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
/* The number of physical experts of a layer that this stage holds: all, or in a group those of this member. */
uint32_t experts_held(const ModelConfig *config);
/* The most rows that the experts of this stage can get in a pass, or the limit that ModelConfig.expert_rows sets if
   that is smaller. */
size_t experts_room(const Component *component);
/* For ComponentKind.open: creates component->exchanges[number], which later describes one all-to-all in the component's
   lists. Sends nothing. Without a group creates nothing. `what`: the beginning of its name in messages ("dispatch" of
   layer 3). `back`: as in GroupExchange. `pass`: RECIPE_F or RECIPE_B, the pass whose all-to-all it is.
   STATUS_RUN_FAILED: out of memory. */
Status experts_exchange(Component *component, int number, const char *what, bool back, RecipePass pass, Error *error);
/* Appends two operations to the list: the post of an all-to-all that sends rows from x to y, and its wait. Appends
   nothing without a group. */
void experts_send_rows(const Component *component, const ExpertsFrame *frame, int exchange, Address x, Address y,
                       OpList *list);

extern const ComponentKind component_router, component_dispatch, component_shared, component_experts, component_combine;
