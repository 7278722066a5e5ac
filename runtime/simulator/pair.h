#ifndef SIMULATOR_PAIR_H
#define SIMULATOR_PAIR_H

/* The operations of an F&B or F&F, in the order in which a rank of a real run issues them when it walks the merged list
   of both halves (runtime/model/overlap.c). A component that computes is one operation. A component that communicates
   is a post and a wait. The wait comes right before the next operation of the same half that needs its result or is a
   post; if there is none, at the end of the pair. */

#include "runtime/program/recipe_times.h"

typedef enum PairOpKind { PAIR_COMPUTE, PAIR_POST, PAIR_WAIT } PairOpKind;

typedef struct PairOp {
    PairOpKind kind;
    RecipeEntry entry;
    uint8_t half;   /* 0 or 1 */
    uint32_t layer; /* counted from 0 at the first layer of the stage in an F, at the last layer in a backward */
    double time;    /* of the computation or the transfer, in units of the costs; 0 for a wait */
} PairOp;

/* What is the same for all pairs with one recipe. */
typedef struct PairOrder {
    RecipeWalk entries; /* at its beginning, over no layers */
    RecipeSteps steps;
} PairOrder;

PairOrder pair_order(const Recipe *recipe, const Costs *costs);

typedef struct PairWalk {
    const PairOrder *order;
    RecipeWalk entries;
    bool weights;     /* the backward is a whole B, not I alone */
    bool has_next;    /* `next` is set */
    PairOp next;      /* the operation of the entry that came last, if it is still to come */
    PairOp posted[2]; /* of each half: its last post */
    bool waits[2];    /* whether the wait for it is still to come */
} PairWalk;

/* A walk over the operations of one pair at its beginning. `weights`: the backward is a whole B, not I alone. */
PairWalk pair_walk(const PairOrder *order, uint32_t first_layers, uint32_t second_layers, bool weights);
/* Writes the next operation; false: there is none. */
bool pair_next(PairWalk *walk, PairOp *op);

#endif
