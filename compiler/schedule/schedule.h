#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

/* A schedule with all parameters filled in: the rank of each stage, and the order in which each rank runs its
   passes. place and expand make it from a .dps file, csv from a .csv file; every later pass reads or refines it. */

#include "compiler/source/diag.h"
#include "runtime/base/arena.h"
#include "runtime/program/program.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHEDULE_PASSES_MAX = 1 << 27 }; /* most forward and backward passes of all ranks together: they take 3 GiB */

/* An action of a rank. The first four are passes, U updates the weights of a stage, the others are messages. */
typedef enum ActionKind {
    ACTION_F, /* forward */
    ACTION_B, /* full backward, I and W together */
    ACTION_I, /* backward for the input (dgrad) */
    ACTION_W, /* backward for the weights (wgrad) */
    ACTION_U, /* asynchronous update: makes the next version of the weights from the gradients since the last one */
    ACTION_SEND_F,
    ACTION_RECV_F,
    ACTION_SEND_B,
    ACTION_RECV_B,
    ACTION_KINDS
} ActionKind;

typedef struct Action {
    uint8_t kind;
    uint8_t chunk; /* of this rank */
    bool overlap;  /* this action (an F) and the next one are one F&B or F&F */
    uint16_t pipe;
    /* of the pass; of a message as PyTorch writes it: the sender's stage in SEND, the receiver's stage in RECV */
    uint16_t stage;
    uint16_t peer;       /* of a message: the other rank */
    uint32_t microbatch; /* its number in its pipe; of a U: the version that it makes, from 1 */
    Span span;           /* the word, step or cell that it comes from */
} Action;

typedef struct Order {
    Action *actions;
    uint32_t count, capacity;
} Order;

typedef struct PlacedPipe {
    const char *name;
    uint32_t stages, microbatches;
    uint32_t written; /* microbatches for which the steps are written; those from `microbatches` on do not exist */
    /* microbatch m of this pipe is microbatch first + m of the step: those of earlier pipes come before */
    uint32_t first;
    bool replicated;    /* the rank of a stage depends on the microbatch */
    Home *homes;        /* [stages], or [stages * written] of a replicated pipe; read it with stage_home */
    uint32_t *versions; /* [microbatches]: the version of the weights that each uses; NULL: the newest one when its F
                           runs */
    Span version_span;  /* of the expression of `versions` */
    Span span;
} PlacedPipe;

typedef struct PlacedChunk {
    uint16_t pipe, stage;
} PlacedChunk;

/* The copies of a stage in all pipes, in the order of Group. They sum their gradients before each update. If a stage
   is updated within the step, all of its copies make each version together. */
typedef struct Copies {
    Home *homes;
    uint32_t count, versions;
    uint32_t *gradients; /* [version - 1]: the number of microbatches that the version is made of, over all copies */
} Copies;

/* Tells at which iteration or slot of its step the author wrote an action: "here m = 3". NULL: the source says
   nothing more than the action's span. */
typedef struct Origin Origin;
struct Origin {
    const char *(*place)(const Origin *origin, uint32_t rank, uint32_t position);
};

/* Time slots of a rank in which several passes run. */
enum { SHARED_SLOTS_KEPT = 4, SHARED_PASSES_KEPT = 12 };
typedef struct SharedSlots {
    uint32_t count;
    int64_t slots[SHARED_SLOTS_KEPT]; /* the first such slots */
    /* for each of `slots` its first passes, in the order they run, and how many more there are: "F[2], B[0]" */
    const char *passes[SHARED_SLOTS_KEPT];
} SharedSlots;

/* A parameter whose value the file computed from the costs. */
typedef struct ChosenParameter {
    const char *name;
    int64_t value;
} ChosenParameter;

typedef struct Schedule {
    const char *name;
    uint32_t ranks;
    uint32_t microbatches; /* of all pipes */
    uint32_t pipe_count;
    PlacedPipe *pipes;
    uint32_t *chunk_counts; /* [ranks] */
    PlacedChunk **chunks;   /* [ranks][chunk] */
    Order *orders;          /* [ranks] */
    bool has_messages;      /* the source (a .csv) has messages of its own */
    Recipes recipes;        /* of F&Bs or F&Fs */
    /* tells where the actions of the orders were written; NULL: expand did not write the orders */
    const Origin *origin;
    SharedSlots *shared_slots; /* [ranks] if steps have slots; else NULL */
    bool forward_only;         /* filled in by compile: schedule_runs_forward_only */
    ChosenParameter *chosen;   /* [chosen_count]; filled in by compile */
    uint32_t chosen_count;
    /* Filled in by copies_find: */
    Copies *copies;    /* [stages] */
    bool asynchronous; /* it has U: weights are updated within the step */
} Schedule;

/* The sizes and the chosen parameters, for headers: "4 ranks, 8 microbatches, drain = 1 for these costs". The text
   lives until the end of the full expression. */
typedef struct SizesText {
    char text[256];
} SizesText;
SizesText schedule_sizes(const Schedule *schedule);

/* Whether the orders have passes, and all of them are F. */
bool schedule_runs_forward_only(const Schedule *schedule);

/* The costs that the schedule uses, as bits 1 << StageCost: those of the kinds of passes in its orders, and FB or FF if
   there are pairs. A schedule without B, for example, does not use the costs of B. The memory costs are always
   included. */
uint32_t schedule_costs_used(const Schedule *schedule);

/* The rank and chunk of a stage for a microbatch below `written`. */
static inline Home stage_home(const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch)
{
    return pipe->homes[pipe->replicated ? (size_t)stage * pipe->written + microbatch : stage];
}

/* The first microbatch of the chunk at or after `from`; `limit` if there is none below it. */
uint32_t chunk_microbatch(const Schedule *schedule, uint32_t rank, uint32_t chunk, uint32_t from, uint32_t limit);
/* Writes the microbatches of the chunk as text: "microbatches 1, 3, 5, 7, ..."; "" if the chunk has all microbatches of
   its pipe. 80 bytes are enough. */
void chunk_microbatches_text(const Schedule *schedule, uint32_t rank, uint32_t chunk, char *text, size_t size);

static inline bool action_is_message(const Action *action) { return action->kind > ACTION_U; }

/* [kind]: the name of the kind in a cell of a .csv, such as "F" or "SEND_F". */
extern const char *const action_names[ACTION_KINDS];
/* The letter of F, B, I, W or U. */
static inline char action_letter(uint8_t kind) { return action_names[kind][0]; }
/* The word of a .csv for a pair with this second half: OVERLAP_F_B or OVERLAP_F_F. */
const char *action_pair_name(const Action *second);
/* The kind of that name; ACTION_KINDS: none. */
uint8_t action_kind_named(const char *name, size_t length);

/* Appends to an order; the arena owns the memory. */
void order_append(Order *order, Arena *arena, const Action *action);

/* "1F3" or, with several pipes, "p1:1F3"; "1SEND_F3" for messages; "1U2" makes version 2. Returns the result of
   snprintf. */
int action_text(const Schedule *schedule, const Action *action, char *text, size_t size);
/* Writes the pass as a schedule file does: "F1[3]" or, if the rank holds one chunk, "F[3]". Returns the result of
   snprintf. */
int pass_text(const Schedule *schedule, uint32_t rank, const Action *pass, char *text, size_t size);

#endif
