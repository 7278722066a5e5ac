#pragma once

/* A schedule with all parameters filled in: the rank of each stage, and the order in which each rank runs its passes.
   place and then expand or order_auto make it from a .dps file, csv_read from a .csv file, raise_schedule from a
   program. Every later step of the compiler reads or refines it. */

#include "compiler/source/diag.h"
#include "base/arena.h"
#include "program/program.h"

#include <stdbool.h>
#include <stdint.h>

/* most forward and backward passes of all ranks together: their actions take 3 GiB */
enum { SCHEDULE_PASSES_MAX = 1 << 27 };

/* An action of a rank. The first four are passes, U updates the weights of a stage, the others are messages. */
typedef enum ActionKind {
    ACTION_F, /* forward */
    ACTION_B, /* full backward, I and W together */
    ACTION_I, /* backward for the input (dgrad) */
    ACTION_W, /* backward for the weights (wgrad) */
    ACTION_U, /* asynchronous update: makes the next version of the weights with the gradients since the last U */
    ACTION_SEND_F,
    ACTION_RECV_F,
    ACTION_SEND_B,
    ACTION_RECV_B,
    ACTION_KINDS
} ActionKind;

typedef struct Action {
    uint8_t kind;
    uint8_t chunk; /* index among the chunks of its rank */
    bool overlap;  /* this action (an F) and the next one are one F&B or F&F */
    uint16_t pipe;
    /* stage of the pass or U. Of a message, as PyTorch writes it: the sender's stage in SEND, the receiver's stage in
       RECV */
    uint16_t stage;
    union {
        uint16_t peer; /* of a message: the rank at the other end */
        /* Of an I of an F&B and of its W, which follows: the components whose weight gradients the recipe of the F&B
           puts off to the W, as bits 1 << ModelPart. The I then computes all other weight gradients. 0: none are put
           off. */
        uint16_t put_off;
    };
    uint32_t microbatch; /* number of the microbatch in its pipe; of a U: the version that it makes, from 1 */
    Span span;           /* the word, step or cell of the source that it comes from */
} Action;

typedef struct Order {
    Action *actions;
    uint32_t count, capacity;
} Order;

typedef struct PlacedPipe {
    const char *name;
    uint32_t stages, microbatches;
    /* number of microbatches for which the steps are written; those from `microbatches` on do not exist */
    uint32_t written;
    /* number of microbatches of the pipes before this one: microbatch m of this pipe is microbatch first + m of the
       step */
    uint32_t first;
    bool replicated; /* the rank of a stage depends on the microbatch */
    /* the rank and chunk of each stage: [stages]; if `replicated`, those of each stage and microbatch:
       [stages][written]. Read it with stage_home */
    Home *homes;
    /* [microbatches]: the version of the weights that each microbatch uses; NULL: the version that is the newest when
       its F runs */
    uint32_t *versions;
    Span version_span; /* where the source names the versions */
    Span span;
} PlacedPipe;

typedef struct PlacedChunk {
    uint16_t pipe, stage;
} PlacedChunk;

/* The copies of a stage in all pipes, in the same order as the members of a Group. They sum their gradients before each
   update. If a stage is updated within the step, all of its copies make each version together. */
typedef struct Copies {
    Home *homes; /* [count] */
    uint32_t count;
    uint32_t versions; /* how many versions the U of the step make; 0: the stage has no U */
    /* [versions]: element v - 1 is the number of microbatches, over all copies, whose gradients version v is made from
       */
    uint32_t *gradients;
} Copies;

/* Where the author wrote an action. `place` returns the iteration or the slot of its step as text, such as "here m =
   3"; NULL: the action's span says everything. */
typedef struct Origin Origin;
struct Origin {
    const char *(*place)(const Origin *origin, uint32_t rank, uint32_t position);
};

/* A message names at most this many time slots in which a rank runs several passes, and at most this many passes of a
   slot. */
enum { SHARED_SLOTS_KEPT = 4, SHARED_PASSES_KEPT = 12 };
typedef struct SharedSlots {
    uint32_t count;
    int64_t slots[SHARED_SLOTS_KEPT]; /* the first SHARED_SLOTS_KEPT of these slots */
    /* [i]: the first passes in slots[i], in the order in which they run, and how many more there are: "F[2], B[0] and 3
       more" */
    const char *passes[SHARED_SLOTS_KEPT];
} SharedSlots;

/* Where a rank waits until its SENDs are done, from the WAIT_SEND of a .csv. Before the action at position i it waits
   for those at sends[from[i]] to sends[to[i] - 1]. */
typedef struct SendWaits {
    uint32_t *sends, *from, *to;
} SendWaits;

/* A parameter whose value the source computes from the costs. */
typedef struct ChosenParameter {
    const char *name;
    int64_t value;
} ChosenParameter;

typedef struct Schedule {
    const char *name;
    uint32_t ranks;
    uint32_t microbatches; /* microbatches of all pipes together */
    uint32_t pipe_count;
    PlacedPipe *pipes;
    uint32_t *chunk_counts; /* [ranks] */
    PlacedChunk **chunks;   /* [ranks][chunk] */
    Order *orders;          /* [ranks] */
    bool has_messages;      /* the source is a .csv with a SEND or RECV */
    /* most stages of a rank whose weights are gathered at once, by the UNSHARD of a .csv; 0: it has none */
    uint32_t resident;
    SendWaits *send_waits; /* [ranks]; NULL: the source has no WAIT_SEND */
    Recipes recipes;       /* recipes of F&Bs or F&Fs */
    /* where the actions of the orders were written; NULL: expand did not write the orders */
    const Origin *origin;
    SharedSlots *shared_slots; /* [ranks]; NULL: no step has slots */
    bool forward_only;         /* result of schedule_runs_forward_only; set by compile, or by raise_schedule */
    ChosenParameter *chosen;   /* [chosen_count]; set by compile */
    uint32_t chosen_count;
    /* Set by copies_find: */
    Copies *copies;    /* [stages] */
    bool asynchronous; /* the schedule has U: weights are updated within the step */
} Schedule;

/* The sizes and the chosen parameters as text: "4 ranks, 8 microbatches, drain = 1 for these costs". It is returned by
   value and lives until the end of the full expression. */
typedef struct SizesText {
    char text[256];
} SizesText;
SizesText schedule_sizes(const Schedule *schedule);

/* Whether the orders have passes, all of them F, and no U. */
bool schedule_runs_forward_only(const Schedule *schedule);

/* The costs that the schedule uses, as bits 1 << StageCost: those of the kinds of passes in its orders, and FB or FF if
   there are F&Bs or F&Fs. A schedule without B, for example, does not use the costs of B. The memory costs are always
   included. */
uint32_t schedule_costs_used(const Schedule *schedule);

/* The rank and chunk that hold a stage for a microbatch, which must be less than pipe->written. */
static inline Home stage_home(const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch)
{
    return pipe->homes[pipe->replicated ? (size_t)stage * pipe->written + microbatch : stage];
}

/* The first microbatch, from `from` on, that the chunk runs; `limit` if there is none below `limit`. */
uint32_t chunk_microbatch(const Schedule *schedule, uint32_t rank, uint32_t chunk, uint32_t from, uint32_t limit);
/* Writes the microbatches of the chunk as text, at most four of them: "microbatches 1, 3, 5, 7, ..." or "microbatch 3";
   "" if the chunk has all microbatches of its pipe. 80 bytes are enough. */
void chunk_microbatches_text(const Schedule *schedule, uint32_t rank, uint32_t chunk, char *text, size_t size);

static inline bool action_is_message(const Action *action) { return action->kind > ACTION_U; }
static inline bool action_is_send(const Action *action)
{
    return action->kind == ACTION_SEND_F || action->kind == ACTION_SEND_B;
}
/* Whether a message has a gradient; else it has activations. */
static inline bool action_is_gradient(const Action *message)
{
    return message->kind == ACTION_SEND_B || message->kind == ACTION_RECV_B;
}
/* The stage at the other end of a message; below 0 or too large: there is no such stage. */
static inline int action_other_stage(const Action *message)
{
    return message->kind == ACTION_SEND_F || message->kind == ACTION_RECV_B ? message->stage + 1 : message->stage - 1;
}

/* The kind of a pass as the costs know it. If an F&B puts some weight gradients off, its I counts as a B: it computes
   the other weight gradients. */
static inline uint8_t action_cost(const Action *pass)
{
    return pass->kind == ACTION_I && pass->put_off ? ACTION_B : pass->kind;
}

/* [kind]: the name of the kind in a cell of a .csv, such as "F" or "SEND_F". */
extern const char *const action_names[ACTION_KINDS];
/* The letter of F, B, I, W or U. */
static inline char action_letter(uint8_t kind) { return action_names[kind][0]; }
/* The word of a .csv for an F&B or F&F whose second half is `second`: OVERLAP_F_B or OVERLAP_F_F. */
const char *action_pair_name(const Action *second);
/* The kind that has this name in a .csv; ACTION_KINDS: there is none. */
uint8_t action_kind_named(const char *name, size_t length);

/* Appends an action to an order, whose array grows in the arena. */
void order_append(Order *order, Arena *arena, const Action *action);

/* Writes an action as text: "1F3" or, with several pipes, "p1:1F3"; "1SEND_F3" for messages; "1U2" for the U that makes
   version 2. Returns the result of snprintf. */
int action_text(const Schedule *schedule, const Action *action, char *text, size_t size);
/* Writes the pass as a schedule file does: "F1[3]" or, if the rank holds one chunk, "F[3]". Returns the result of
   snprintf. */
int pass_text(const Schedule *schedule, uint32_t rank, const Action *pass, char *text, size_t size);
