#pragma once

/* Internals of a stage: its components in order, each with its part of the stage's buffers. A block is a component
   together with the components that continue it (ComponentKind.continues). For each two consecutive blocks, the stash
   holds the activation between them, and the gradient buffer holds the gradient of that activation if it is needed. The
   activation and the gradient are each as large as a message. */

#include "runtime/device/operation.h"
#include "runtime/model/component.h"

/* A component, and the offsets in elements at which its parts of the stage's buffers begin. All components of a block
   (ComponentKind.continues) have the same offsets, except those of the parameters. */
typedef struct Part {
    Component component;
    uint32_t layer; /* index in the stage; NO_LAYER: outside the layers */
    size_t parameters, context, stash, gradient;
    /* offset of the component's input in the stash, and of the gradient of that input in the gradient buffer; unused in
       the first block, whose input is the stage's */
    size_t x, dx;
    bool learns_before; /* an earlier component or stage needs the gradient dx of this component's input */
    struct {
        size_t begin, end;
    } ops[RECIPE_PASSES]; /* the operations of each pass: begin .. end - 1 of the stage's list of that pass */
} Part;

/* Consecutive operations in the merged list of an F&B or F&F. They belong to one pass (F, I or W) of one component of a
   stage (Stage.parts), and are all operations of that pass or some of them. */
typedef struct PairPart {
    uint32_t index; /* index of the component in its stage */
    RecipePass pass;
    uint8_t half; /* 0: of StagePair.forward, 1: of StagePair.backward */
    bool first;   /* it includes the first operation of the component's pass */
    /* 1 + the index of its last operation in the merged list; its first operation follows the last one of the previous
       PairPart */
    size_t end;
} PairPart;

/* The operations of an F&B or F&F, in the order of its recipe. Bases 1 .. PASS_BASES are the buffers of the first half;
   the next PASS_BASES are those of the second half. */
typedef struct PairList PairList;
struct PairList {
    PairList *next;
    uint64_t backward; /* Stage.number of the second half's stage (StagePair.backward) */
    bool weights, both_forward;
    Recipe recipe;
    OpList list;
    size_t part_count;
    PairPart parts[];
};

struct Stage {
    uint64_t number; /* unique among all stages of the device */
    ModelConfig config;
    Device *device;
    StageSizes sizes;
    bool first;                  /* first stage of the model: no dx */
    uint32_t first_layer;        /* index of its first layer in the whole model */
    PartTimes *times;            /* times of its parts; NULL: not measured */
    PartSpans *spans;            /* when its components ran; NULL: not wanted */
    OpList lists[RECIPE_PASSES]; /* the operations of F, of I and of W */
    /* merged lists of F&Bs and F&Fs whose first half is this stage; each is made before or at its first run */
    PairList *pairs;
    float *counts; /* host memory for one tally and its parameter; NULL if the stage has no tallies */
    size_t part_count;
    Part parts[];
};

/* Floating-point operations of the product of the stage's rows with a square matrix of its hidden size. */
double stage_product(const Stage *stage);

/* Whether the component at `index` belongs to the same part of a layer (RECIPE_ATTENTION, ...) as the one before it. A
   recipe runs them together, and a profile has their sum. */
bool stage_joins(const Stage *stage, size_t index);

/* Where the attention core begins in the part's F: the index of its first operation in stage->lists[RECIPE_F]. The end
   of the part's F if it has no attention core. */
size_t stage_core(const Stage *stage, const Part *part);

/* Finds the merged list of an F&B or F&F, or makes it at the first call. The forward stage owns it. */
Status stage_pair_list(const StagePair *pair, const Recipe *recipe, PairList **list, Error *error);
/* Lets the device bind a list to `bases` if the list is prepared; otherwise *bound is NULL. */
Status stage_bind_list(Device *device, const OpList *list, void *const *bases, BoundPass **bound, Error *error);
/* Makes the lists of a stage whose buffers are laid out: F from the first component to the last, I and W in reverse. */
Status stage_list_operations(Stage *stage, Error *error);
/* Runs operations begin .. end - 1 of a list, which belong to a pass of the `index`-th component. `first`: the first
   operation of the pass is among them. Adds their time if the stage's parts are timed, and notes their span if spans
   are wanted. */
Status stage_run_part(const Stage *stage, size_t index, RecipePass pass, bool first, const OpList *list, size_t begin,
                      size_t end, void *const *bases, Error *error);
/* Adds the time since `begun` to a pass (RECIPE_F, ..., PART_U) of the `index`-th component, and counts the pass if
   `first` and the component does not join the one before it. Only for a stage whose parts are timed (Stage.times).
   Does nothing if the component has no such pass. */
void stage_note_time(const Stage *stage, size_t index, int pass, bool first, int64_t begun);
