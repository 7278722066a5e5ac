#ifndef ORDER_EXPANDER_H
#define ORDER_EXPANDER_H

/* The state of expand, shared by expand.c, which runs the steps, and expand_errors.c, which says what is wrong with
   them. */

#include "compiler/order/weight_queue.h"
#include "compiler/schedule/passes.h"
#include "compiler/source/rank_errors.h"
#include "compiler/tree/values.h"
#include "runtime/program/program.h"

/* A chunk of the rank whose turn it is. */
typedef struct ChunkState {
    uint32_t written;      /* microbatches that its steps speak of, */
    uint32_t own;          /* and those of them that pass this rank */
    uint32_t microbatches; /* those that exist: passes of the others are left out */
    bool shared;           /* its stage may have other copies, which may have gradients where it has none */
    uint32_t next_forward, next_backward;
    uint32_t updates;            /* U's so far */
    uint32_t gathered, left_out; /* gradients since the last of them: made, and of microbatches that do not exist */
} ChunkState;

/* A pass as its step asks for it: which microbatch it takes is known when its turn comes. */
typedef struct Request {
    const Pass *pass;
    ActionKind kind;
    int chunk;          /* NO_CHUNK: of whichever chunk, a W */
    int64_t microbatch; /* -1: the next */
    int64_t slot;
    bool has_slot;
    bool joined; /* an F&B with the request behind it */
} Request;

typedef struct Expander {
    const Ast *ast;
    Arena *arena;
    Schedule *schedule;
    int64_t *values;
    RankErrors errors;
    /* of one rank */
    Arena scratch;
    uint32_t rank;
    ChunkState chunks[PROGRAM_CHUNKS_MAX];
    WeightQueue weights;
    Action *actions;
    uint32_t count;
    Action *forward;   /* the F that the next pass overlaps with; NULL: it does not, or the F is left out */
    Request *requests; /* of a file with slots: all passes of the rank, until their order is known; NULL: they
                                    are served one by one */
    uint32_t request_count;
    uint64_t most;               /* requests that there is room for */
    uint64_t passes, passes_max; /* those left out included */
    uint64_t updates, updates_max;
    uint64_t work, work_max; /* nodes of expressions evaluated: what a loop that makes no passes costs */
    bool ran_away;
    /* where it is, for errors */
    const Item *loops[BLOCK_DEPTH_MAX];
    uint32_t loop_count;
    const Item *step; /* NULL: in none */
    int64_t repetition, repetitions;
    const Request *turn; /* NULL: none waits for its slot any more, or not yet */
    uint32_t sought;     /* POSITION_NONE, or the action of the rank whose circumstances are asked for, */
    const char *found;   /* and these */
} Expander;

static inline bool is_backward(ActionKind kind) { return kind == ACTION_B || kind == ACTION_I; }

#define FAIL(x, span, expression, ...)                                              \
    do {                                                                            \
        RankError *error_ = rank_error(&(x)->errors, (x)->rank, span, __VA_ARGS__); \
        if (error_)                                                                 \
            error_->help = expand_circumstances(x, expression);                     \
        return false;                                                               \
    } while (0)

/* What explains an error: the values in the expression, or else in the step's count, and where the loops are. NULL:
   nothing. */
const char *expand_circumstances(const Expander *x, const Expression *expression);
/* Reports a pass that asks for one more microbatch than there are: how many each step asks for, and their sum. */
bool expand_too_many(Expander *x, const Request *request);
/* Makes `requests` of the rank's steps. False: one of them is wrong, or they are more than every microbatch can
   have. */
bool expand_requests(Expander *x);

const char *expand_pipe_name(const Expander *x, int chunk);

#endif
