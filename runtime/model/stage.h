#ifndef MODEL_STAGE_H
#define MODEL_STAGE_H

/* The inside of a stage: its components one after another, each with its part of the stage's buffers. Between two of
   them lies a message's worth of elements: the activation in the stash, its gradient in the gradient. */

#include "runtime/device/operation.h"
#include "runtime/model/component.h"

enum { NO_LAYER = UINT32_MAX };

/* Where a component's part begins, in elements. Components of a block (ComponentKind.continues) share all but
   parameters. */
typedef struct Part {
    Component component;
    uint32_t layer; /* of the stage, from 0; NO_LAYER: outside the layers */
    size_t parameters, context, stash, gradient;
    size_t x, dx;       /* in the stash and in the gradient; not for the first block */
    bool learns_before; /* somebody before it wants its dx */
    struct {
        size_t begin, end;
    } ops[RECIPE_PASSES]; /* of each pass, in the stage's list */
} Part;

/* A part's pass in the merged list of an F&B. */
typedef struct PairPart {
    uint32_t index; /* of the component in its stage */
    RecipePass pass;
    size_t end; /* of its operations; they begin where those of the part before end */
} PairPart;

/* The operations of an F&B, in the order of its recipe. Bases 1 .. PASS_BASES are the forward half's buffers, those
   behind them the backward half's. */
typedef struct PairList PairList;
struct PairList {
    PairList *next;
    uint64_t backward; /* number of the backward stage */
    bool weights;
    Recipe recipe;
    OpList list;
    size_t part_count;
    PairPart parts[];
};

struct Stage {
    uint64_t number; /* which no other stage of the device has had */
    ModelConfig config;
    Device *device;
    StageSizes sizes;
    bool first;                  /* of the model: no dx */
    PartTimes *times;            /* what its parts take; NULL: nobody asks */
    OpList lists[RECIPE_PASSES]; /* the operations of F, of I and of W */
    PairList *pairs;             /* of F&Bs whose forward half it is; made when the first one runs */
    float *counts;               /* of one tally and its parameter, on the host; NULL: there is none */
    size_t part_count;
    Part parts[];
};

/* Whether the component at `index` is of the same part of a layer (RECIPE_ATTENTION, ...) as the one before it: a
   recipe has them run together, and a profile has their sum. */
bool stage_joins(const Stage *stage, size_t index);

/* The merged list of a pair; the forward stage owns it. */
Status stage_pair_list(const StagePair *pair, const Recipe *recipe, PairList **list, Error *error);
/* The device's bind, of a list that may be prepared; *bound is NULL if it is not. */
Status stage_bind_list(Device *device, const OpList *list, void *const *bases, BoundPass **bound, Error *error);
/* Makes the lists of a stage that is laid out: F from the first component to the last, I and W back. */
Status stage_list_operations(Stage *stage, Error *error);
/* Runs operations begin .. end - 1 of a list, a pass of the `index`-th component, and notes their time if the stage's
   parts are timed. */
Status stage_run_part(const Stage *stage, size_t index, RecipePass pass, const OpList *list, size_t begin, size_t end,
                      void *const *bases, Error *error);
/* The `index`-th component has run a pass (RECIPE_F, ...) since `begun`; for a stage whose parts are timed. */
void stage_note_time(const Stage *stage, size_t index, int pass, int64_t begun);

#endif
