#pragma once

/* Expert-parallel load balancing: which GPU holds which replicas of the experts of a layer.

   A layer has `experts` experts with known loads (tokens, say). The GPUs together have room for `replicas` physical
   experts, so busy experts get several. An expert's load is shared evenly by its replicas; the load of a GPU is the sum
   over its physical experts. The balance of a layer is the mean load of its GPUs, divided by the largest: 1 when all
   are equal, and 1 if there is no load at all.

   A placement is an array [replicas] of experts, GPU after GPU. Each GPU holds replicas / gpus physical experts;
   where that leaves a remainder, the first replicas % gpus GPUs hold one more.

   Neighbouring experts form groups, `groups` in all; neighbouring GPUs form nodes, `nodes` in all. If there are several
   nodes and `groups` is a multiple of `nodes`, the placement is hierarchical: each node takes groups / nodes groups,
   and all replicas of an expert are on the node of its group. Otherwise it is global: any expert may be on any GPU.

   All arrays are the caller's. An arena gives working memory; its `exhausted` must be set. */

#include "base/arena.h"
#include "base/front_end.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct BalanceShape {
    uint32_t experts, replicas, gpus;
    uint32_t groups, nodes; /* each at least 1; both are 1 if the experts have no groups */
    FrontEnd front_end;     /* who gives the shape */
} BalanceShape;

/* BALANCE_REPLICAS_MAX: most physical experts of a layer; BALANCE_LOAD_MAX: the largest load of an expert. */
enum { BALANCE_REPLICAS_MAX = 1 << 16 };
#define BALANCE_LOAD_MAX 1e30

bool balance_is_hierarchical(const BalanceShape *shape);
/* STATUS_BAD_USAGE: no placement can have this shape, it has more than BALANCE_REPLICAS_MAX replicas or, if `eplb`,
   balance_eplb does not accept it. The error says why. */
Status balance_check(const BalanceShape *shape, bool eplb, Error *error);

/* The index of a GPU's first slot in the placement of a layer. With gpu == shape->gpus, how many slots a layer has. */
uint32_t balance_first_slot(const BalanceShape *shape, uint32_t gpu);

/* The algorithm of DeepSeek's EPLB (github.com/deepseek-ai/EPLB, eplb.py, rebalance_experts). The placement is the
   same, with the physical experts in the same order. Loads are compared and added as 32-bit floats. Of equal items the
   one with the lower index comes first. balance_check with `eplb` must accept the shape. loads: [layers][experts], each
   from 0 to BALANCE_LOAD_MAX; placement: [layers][replicas]. */
void balance_eplb(const BalanceShape *shape, uint32_t layers, const double *loads, uint32_t *placement, Arena *arena);

/* What balance_best is asked for. Without a current placement (`from` is NULL) moves and threshold have no effect. */
typedef struct BalanceRequest {
    bool distinct;        /* no GPU may hold an expert twice */
    const uint32_t *from; /* [replicas]: the current placement, which balance_check_placement accepts; NULL: none */
    /* most moves: a move is a slot with an expert that the slot's GPU does not hold in `from` */
    uint32_t moves;
    /* the current placement is kept if the balance would rise by less than this, or not at all, unless `distinct`
       forbids the current placement */
    double threshold;
} BalanceRequest;

/* Finds a placement of a layer with a high balance. Without `from` and `distinct`, the balance is never lower than that
   of balance_eplb, if balance_eplb accepts the shape. Of placements with the same largest load it prefers one without
   an expert twice on a GPU. Without any load nothing moves: the placement is `from` (if `distinct` allows it) or,
   without `from`, that of balance_in_order. With `from`, experts that stay on a GPU stay in their slots. One candidate
   is then an improved copy of `from` with no more duplicates (balance_duplicates), another is a placement made without
   regard to `from`, if it needs at most `moves` moves. If their balances differ by less than 0.001 and neither is lower
   than that of balance_eplb, the one with fewer moves is taken. loads: [experts]; placement: [replicas]. *bound: no
   placement of this shape (with `distinct`: none without duplicates) has a higher balance. STATUS_BAD_USAGE,
   STATUS_BAD_INPUT: the request is impossible; the error says why. */
Status balance_best(const BalanceShape *shape, const BalanceRequest *request, const double *loads, uint32_t *placement,
                    double *bound, Arena *arena, Error *error);

/* What a plan does to a layer: its balance before and after, the bound of balance_best, and the moves. */
typedef struct LayerBalance {
    double before, after, bound;
    uint32_t moves;
} LayerBalance;

/* Places a layer by balance_best or, if `eplb`, by balance_eplb, which knows no `from`. before: [replicas] becomes
   request->from or, without it, the placement of balance_in_order. */
Status balance_layer(const BalanceShape *shape, const BalanceRequest *request, bool eplb, const double *loads,
                     uint32_t *before, uint32_t *placement, LayerBalance *layer, Arena *arena, Error *error);

/* Checks that the array is a placement of this shape. STATUS_BAD_INPUT: it is not. The error says why, and *slot is
   the first wrong slot; 0 if an expert is missing. */
Status balance_check_placement(const BalanceShape *shape, const uint32_t *placement, uint32_t *slot, Arena *arena,
                               Error *error);

/* Writes experts 0, 1, 2, ... repeatedly, GPU after GPU: the placement with which frameworks start. In a hierarchical
   placement each node repeats the experts of its groups. placement: [replicas]. */
void balance_in_order(const BalanceShape *shape, uint32_t *placement);

/* Writes count[expert]: the number of replicas of each expert in the placement of one layer. */
void balance_counts(const BalanceShape *shape, const uint32_t *placement, uint32_t *count);
/* Writes gpu_loads[gpu]: the load of each GPU. */
void balance_gpu_loads(const BalanceShape *shape, const double *loads, const uint32_t *placement, double *gpu_loads,
                       Arena *arena);
/* The balance of a layer in this placement: the mean load of its GPUs, divided by the largest load. */
double balance_of(const BalanceShape *shape, const double *loads, const uint32_t *placement, Arena *arena);
/* The balance of a layer with these loads, if the most loaded GPU has the load `largest`: the mean load of its GPUs,
   divided by `largest`. */
double balance_of_largest(const BalanceShape *shape, const double *loads, double largest);
/* The number of moves from one placement to another: the physical experts of `to` that their GPU does not hold in
   `from`. */
uint32_t balance_moves(const BalanceShape *shape, const uint32_t *from, const uint32_t *to, Arena *arena);
/* The number of duplicates: physical experts whose GPU holds the same expert in an earlier slot, too. */
uint32_t balance_duplicates(const BalanceShape *shape, const uint32_t *placement, Arena *arena);
