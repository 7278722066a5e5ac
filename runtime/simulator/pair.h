#pragma once

/* The operations of an F&B or F&F, in the order in which a rank of a real run issues them when it walks the merged list
   of both halves (runtime/model/overlap.c). A component that computes is one operation. A component that communicates
   is a post and a wait. The wait comes right before the next operation of the same half that needs its result or is a
   post itself; if there is none, at the end of the pair. */

#include "program/times/recipe_times.h"

typedef enum PairOpKind { PAIR_COMPUTE, PAIR_POST, PAIR_WAIT } PairOpKind;

typedef struct PairOp {
    PairOpKind kind;
    RecipeEntry entry;
    uint8_t half;   /* 0 or 1 */
    uint32_t layer; /* counted from 0 at the first layer of the stage in an F, at the last layer in a backward */
    double time;    /* of the computation or the transfer, in units of the costs; 0 for a wait */
} PairOp;

/* What all F&Bs (or F&Fs) with one recipe and the same costs have in common. */
typedef struct PairOrder {
    RecipeWalk entries; /* a walk of the recipe that has not begun; pair_walk sets the numbers of layers */
    RecipeSteps steps;
} PairOrder;

PairOrder pair_order(const Recipe *recipe, const Costs *costs);

typedef struct PairWalk {
    const PairOrder *order;
    RecipeWalk entries;
    /* true: the walk includes W, because the backward is a B, or an I that puts off only some weight gradients; false:
       the backward is an I alone, or there is none (F&F) */
    bool weights;
    bool has_next;    /* `next` is set */
    PairOp next;      /* the operation of the recipe entry read last, if pair_next has not returned it yet */
    PairOp posted[2]; /* [half] its last post */
    bool waits[2];    /* [half] pair_next has not returned the wait for that post yet */
} PairWalk;

/* Begins a walk over the operations of one F&B or F&F. `weights`: as in PairWalk. */
PairWalk pair_walk(const PairOrder *order, uint32_t first_layers, uint32_t second_layers, bool weights);
/* Writes the next operation; false: there is none. */
bool pair_next(PairWalk *walk, PairOp *op);
