#ifndef ORDER_EXPANDER_H
#define ORDER_EXPANDER_H

/* The state of expand, shared by expand.c, which runs the steps, and expand_errors.c, which reports their errors. */

#include "compiler/order/weight_queue.h"
#include "compiler/schedule/passes.h"
#include "compiler/source/rank_errors.h"
#include "compiler/tree/values.h"
#include "runtime/program/program.h"

/* A chunk of the current rank. */
typedef struct ChunkState {
    uint32_t written;      /* number of microbatches for which the steps are written: N of `M of N microbatches` */
    uint32_t own;          /* how many of the written microbatches belong to this rank */
    uint32_t microbatches; /* number of microbatches that exist: M; passes of the others are left out */
    /* its stage may have other copies: a U is then never left out, because another copy may have gradients */
    bool shared;
    uint32_t next_forward, next_backward;
    uint32_t updates;            /* number of U so far */
    uint32_t gathered, left_out; /* gradients since the last U: computed, and of microbatches that do not exist */
} ChunkState;

/* A pass as its step requests it. It takes its microbatch when its turn comes. */
typedef struct Request {
    const Pass *pass;
    ActionKind kind;
    int chunk;          /* NO_CHUNK: a W of any chunk */
    int64_t microbatch; /* -1: the next one */
    int64_t slot;
    bool has_slot;
    bool joined; /* an F&B or F&F together with the next request */
} Request;

typedef struct Expander {
    const Ast *ast;
    Arena *arena;
    Schedule *schedule;
    int64_t *values;
    RankErrors errors;
    /* of the current rank */
    Arena *scratch;
    uint32_t rank;
    ChunkState chunks[PROGRAM_CHUNKS_MAX];
    WeightQueue weights;
    Action *actions;
    uint32_t count;
    Action *forward; /* the F that the next pass overlaps with; NULL: it does not overlap, or the F is left out */
    /* all passes of the rank, to be sorted by slot if the file has slots, or to be counted for a message; NULL: each
       pass is appended to the order at once */
    Request *requests;
    uint32_t request_count;
    uint64_t most; /* capacity of `requests` */
    /* number of passes other than U requested so far, including those that are left out; the most allowed */
    uint64_t passes, passes_max;
    uint64_t updates, updates_max;
    uint64_t work, work_max; /* nodes of expressions evaluated: the cost of a loop without passes */
    bool ran_away;
    /* the position in the file, for errors */
    const Item *loops[BLOCK_DEPTH_MAX];
    uint32_t loop_count;
    const Item *step; /* NULL: outside of steps */
    int64_t repetition, repetitions;
    const Request *turn; /* the request that is appended now, after all were sorted by slot; NULL: none */
    uint32_t sought;     /* position of the action for which `found` is wanted; POSITION_NONE: none */
    const char *found;   /* the text that tells where the sought action was written: "here m = 3" */
} Expander;

static inline bool is_backward(ActionKind kind) { return kind == ACTION_B || kind == ACTION_I; }

#define FAIL(x, span, expression, ...)                                              \
    do {                                                                            \
        RankError *error_ = rank_error(&(x)->errors, (x)->rank, span, __VA_ARGS__); \
        if (error_)                                                                 \
            error_->help = expand_circumstances(x, expression);                     \
        return false;                                                               \
    } while (0)

/* What explains an error: the values in the expression, or else in the step's count, and the iterations of the
   loops. NULL: nothing does. */
const char *expand_circumstances(const Expander *x, const Expression *expression);
/* Reports a pass that requests one more microbatch than there are, with the numbers that the first passes in the file
   request, that of all others together, and the sum. Always false. */
bool expand_too_many(Expander *x, const Request *request);
/* Runs the rank's steps and stores each pass as one of `requests`. False: a step is wrong, or there are more passes or
   U than all microbatches can have, or too many iterations. */
bool expand_requests(Expander *x);

const char *expand_pipe_name(const Expander *x, int chunk);

#endif
