#pragma once

/* The state of expand(), shared by expand.c, which runs the steps, and expand_errors.c, which reports errors in them.
   */

#include "compiler/order/weight_queue.h"
#include "compiler/schedule/passes.h"
#include "compiler/source/rank_errors.h"
#include "compiler/tree/values.h"
#include "program/program.h"

/* A chunk of the current rank. */
typedef struct ChunkState {
    uint32_t written; /* number of microbatches for which the steps are written: N of `M of N microbatches` */
    uint32_t own;     /* how many of the `written` microbatches belong to this rank */
    /* number of microbatches that exist: M of `M of N microbatches`; passes of the other N - M are left out */
    uint32_t microbatches;
    /* the stage may have other copies. A U is then never left out, because another copy may have gradients */
    bool shared;
    uint32_t next_forward, next_backward;
    uint32_t updates; /* number of U of the chunk so far */
    /* gathered: number of gradients computed since the last U; left_out: how many were left out, because their
       microbatches do not exist */
    uint32_t gathered, left_out;
} ChunkState;

/* A pass that a step asks for. If it names no microbatch, it gets one when it is appended to the order. */
typedef struct Request {
    const Pass *pass;
    ActionKind kind;
    int chunk;          /* NO_CHUNK: the request is for a W of any chunk */
    int64_t microbatch; /* -1: none is named, so a W takes the oldest waiting one, another pass the chunk's next one */
    int64_t slot;
    bool has_slot;
    bool joined; /* forms an F&B or F&F with the next request */
} Request;

typedef struct Expander {
    const Ast *ast;
    Arena *arena;
    Schedule *schedule;
    int64_t *values;
    RankErrors errors;
    /* for the current rank: */
    Arena *scratch;
    uint32_t rank;
    ChunkState chunks[PROGRAM_CHUNKS_MAX];
    WeightQueue weights;
    Action *actions;
    uint32_t count;
    /* the F with which the next pass forms an F&B or F&F; NULL: the next pass runs alone, or the F was left out */
    Action *forward;
    /* all requests of the rank, stored to be sorted by slot or to be counted for an error message; NULL: each pass is
       appended to the order at once */
    Request *requests;
    uint32_t request_count;
    uint64_t most; /* capacity of `actions` and of `requests` */
    /* passes: number of passes other than U requested so far, also of microbatches that do not exist; passes_max: the
       most allowed */
    uint64_t passes, passes_max;
    uint64_t updates, updates_max;
    /* work: nodes of expressions evaluated, and iterations of loops; work_max ends loops without passes */
    uint64_t work, work_max;
    bool ran_away;
    /* where the run is in the file, for error messages: the loops around, the step and its repetition */
    const Item *loops[BLOCK_DEPTH_MAX];
    uint32_t loop_count;
    const Item *step; /* NULL: between steps */
    int64_t repetition, repetitions;
    const Request *turn; /* in serve_in_slots: the request that is being appended; otherwise NULL */
    uint32_t sought;     /* for place_of: position of the action for which `found` is wanted; POSITION_NONE: none */
    const char *found;   /* the circumstances of that action as text, such as "here m = 3"; NULL: there are none */
} Expander;

static inline bool is_backward(ActionKind kind) { return kind == ACTION_B || kind == ACTION_I; }

#define FAIL(x, span, expression, ...)                                              \
    do {                                                                            \
        RankError *error_ = rank_error(&(x)->errors, (x)->rank, span, __VA_ARGS__); \
        if (error_)                                                                 \
            error_->help = expand_circumstances(x, expression);                     \
        return false;                                                               \
    } while (0)

/* The circumstances of an error, as text: the values in the expression or, if it is NULL, in the count of the step, the
   iterations of the loops and the repetition of the step. While serve_in_slots runs, the slot of the pass. NULL: there
   is nothing to say. */
const char *expand_circumstances(const Expander *x, const Expression *expression);
/* Reports a request for one more microbatch than there are. The message adds up how many microbatches each written pass
   requests: the first SHARES_MAX passes one by one, all others together. Returns false. */
bool expand_too_many(Expander *x, const Request *request);
/* Runs the rank's steps and stores each pass in x->requests. False: a step is wrong, or there are more passes or U
   than all microbatches can have, or too many iterations. */
bool expand_requests(Expander *x);

const char *expand_pipe_name(const Expander *x, int chunk);
