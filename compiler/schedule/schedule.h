#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

/* A schedule with all parameters filled in: where every stage lives, and in which order every rank runs its passes.
   Made from a .dps file by place and expand, from a .csv file by csv; every later pass reads or refines it. */

#include "compiler/source/diag.h"
#include "runtime/base/arena.h"
#include "runtime/program/program.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHEDULE_PASSES_MAX = 1 << 27 }; /* F and B of all ranks: 3 GiB of actions */

/* What a rank does. The first four are passes, U updates the weights of a stage, the others are messages. */
typedef enum ActionKind {
    ACTION_F, /* forward */
    ACTION_B, /* full backward, I and W together */
    ACTION_I, /* backward for the input */
    ACTION_W, /* backward for the weights */
    ACTION_U, /* asynchronous: makes the next version of the weights from the gradients since the last */
    ACTION_SEND_F,
    ACTION_RECV_F,
    ACTION_SEND_B,
    ACTION_RECV_B,
    ACTION_KINDS
} ActionKind;

typedef struct Action {
    uint8_t kind;
    uint8_t chunk; /* of this rank */
    bool overlap;  /* with the next action: the two are one F&B. Set on the F */
    uint16_t pipe;
    /* of the pass; for a message as PyTorch writes it: sender's own stage in SEND, receiver's own in RECV */
    uint16_t stage;
    uint16_t peer;       /* messages: the other rank */
    uint32_t microbatch; /* of its pipe; U: the version that it makes, from 1 */
    Span span;           /* the word, step or cell that it came from */
} Action;

typedef struct Order {
    Action *actions;
    uint32_t count, capacity;
} Order;

typedef struct PlacedPipe {
    const char *name;
    uint32_t stages, microbatches;
    uint32_t written;   /* microbatches that the steps speak of; from `microbatches` on there are none */
    uint32_t first;     /* number of its first microbatch in the step: those of the pipes before it */
    bool replicated;    /* where a stage lives depends on the microbatch */
    Home *homes;        /* [stages], or [stages * written] of a replicated pipe: read by stage_home */
    uint32_t *versions; /* [microbatches]: which version of the weights each uses; NULL: the newest when its F runs */
    Span version_span;  /* of what says so */
    Span span;
} PlacedPipe;

typedef struct PlacedChunk {
    uint16_t pipe, stage;
} PlacedChunk;

/* The copies of a stage, of all pipes, in the order of Group. They sum their gradients before each update. A stage that
   is updated within the step gets each version of its weights from all of its copies together. */
typedef struct Copies {
    Home *homes;
    uint32_t count, versions;
    uint32_t *gradients; /* [version - 1]: of how many microbatches it is made, over all copies */
} Copies;

/* Says at which iteration or slot of its step the author wrote an action: "here m = 3". NULL: the source says nothing
   more than the action's span. */
typedef struct Origin Origin;
struct Origin {
    const char *(*place)(const Origin *origin, uint32_t rank, uint32_t position);
};

/* Time slots of a rank in which several passes run. */
enum { SHARED_SLOTS_KEPT = 4 };
typedef struct SharedSlots {
    uint32_t count;
    int64_t slots[SHARED_SLOTS_KEPT];      /* the first ones, */
    const char *passes[SHARED_SLOTS_KEPT]; /* and their passes in the order in which they run: "F[2], B[0]" */
} SharedSlots;

typedef struct Schedule {
    const char *name;
    uint32_t ranks;
    uint32_t microbatches; /* of all pipes */
    uint32_t pipe_count;
    PlacedPipe *pipes;
    uint32_t *chunk_counts;    /* [ranks] */
    PlacedChunk **chunks;      /* [ranks][chunk] */
    Order *orders;             /* [ranks] */
    bool has_messages;         /* the source wrote its own communication (.csv only) */
    Recipe *recipe;            /* of every F&B; NULL: not said */
    const Origin *origin;      /* of the orders as expand wrote them; NULL: of none */
    SharedSlots *shared_slots; /* [ranks] where steps have slots; NULL: they have none */
    /* Filled in by copies_find: */
    Copies *copies;    /* [stages] */
    bool asynchronous; /* it has U: weights are updated within the step */
} Schedule;

/* The costs on which its times and its memory depend, as bits 1 << StageCost: it may run no B, or no F&B. */
uint32_t schedule_costs_used(const Schedule *schedule);

/* Where a microbatch below `written` passes a stage. */
static inline Home stage_home(const PlacedPipe *pipe, uint32_t stage, uint32_t microbatch)
{
    return pipe->homes[pipe->replicated ? (size_t)stage * pipe->written + microbatch : stage];
}

/* The first microbatch from `from` on that passes the chunk; `limit` when there is none below it. */
uint32_t chunk_microbatch(const Schedule *schedule, uint32_t rank, uint32_t chunk, uint32_t from, uint32_t limit);
/* "microbatches 1, 3, 5, 7, ...": those that pass the chunk, "" when that is all of its pipe. 80 bytes are enough. */
void chunk_microbatches_text(const Schedule *schedule, uint32_t rank, uint32_t chunk, char *text, size_t size);

static inline bool action_is_message(const Action *action) { return action->kind > ACTION_U; }

/* As cells spell them: "F", "SEND_F". */
extern const char *const action_names[ACTION_KINDS];
/* Of F, B, I, W and U, which have one. */
static inline char action_letter(uint8_t kind) { return action_names[kind][0]; }
/* ACTION_KINDS: no such name. */
uint8_t action_kind_named(const char *name, size_t length);

/* Appends to an order; the memory is the arena's. */
void order_append(Order *order, Arena *arena, const Action *action);

/* "1F3" or, with several pipes, "p1:1F3"; "1SEND_F3" for messages; "1U2" makes version 2. Returns what snprintf
   returns. */
int action_text(const Schedule *schedule, const Action *action, char *text, size_t size);
/* "F1[3]" or, where the rank holds one chunk, "F[3]": the pass as a schedule file writes it. Returns what snprintf
   returns. */
int pass_text(const Schedule *schedule, uint32_t rank, const Action *pass, char *text, size_t size);

#endif
