#ifndef EXECUTOR_EXECUTOR_H
#define EXECUTOR_EXECUTOR_H

/* Runs a proven program on one rank. It walks the rank's instructions, calls the host's stage functions for passes and
   updates, moves messages between ranks, and notes when each instruction ended. What a stage computes, its weights, its
   data and its optimizer belong to the host. The trainer is a host, the simulator another one; tests/executor/toy.h is
   the smallest.

   program_load, then for each rank of this process: executor_connect, executor_open, memory for the slots,
   executor_bind, executor_run once a step, executor_close, executor_disconnect. An executor is used by one thread at a
   time. */

#include "runtime/base/arena.h"
#include "runtime/base/progress.h"
#include "runtime/base/status.h"
#include "runtime/program/program.h"
#include "runtime/transport/communicator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- programs (load.c) --- */

/* What a step runs and, made from it, what an evaluation runs. Both are proven: nothing after this checks again. They
   share one slot plan. */
typedef struct LoadedProgram {
    Program *program;  /* as in the file, or all of it on one rank, or its forward half */
    Program *forward;  /* the forward half; the same as `program` when that is one */
    uint32_t replicas; /* copies of the pipeline that run the program; 1 for a reference */
    uint32_t shards;   /* as in LoadOptions, also for a reference */
    Mesh reference;    /* for a reference: the mesh whose work one rank does; else zeros */
} LoadedProgram;

/* How to run a program. All zero: as it is, by one pipeline. */
typedef struct LoadOptions {
    uint32_t replicas; /* how many copies of the pipeline train together; 0: one */
    /* consecutive replicas that together hold one copy of sharded parameters (those of experts); it divides `replicas`.
       0: one */
    uint32_t shards;
    bool reference; /* the whole model on one rank, with the microbatches of all replicas (program_reference) */
    bool forward_only;
    bool in_order; /* the transport runs messages in the order of their posts (NCCL): none is posted early */
} LoadOptions;

/* Reads a program and derives what the options ask for. STATUS_BAD_INPUT: the file cannot be read or is not a proven
   program. The arena owns all memory. */
Status program_load(const char *path, const LoadOptions *options, Arena *arena, LoadedProgram *loaded, Error *error);
/* Like program_load, for a program that is already in memory. */
Status program_derive(Program *program, const LoadOptions *options, Arena *arena, LoadedProgram *loaded, Error *error);

/* The mesh of the members that run the program. */
static inline Mesh loaded_mesh(const LoadedProgram *loaded)
{
    return (Mesh){.ranks = (int)loaded->program->rank_count, .replicas = (int)loaded->replicas};
}

/* The words for the progress of ranks that run this program, which must outlive them (words.c). */
ProgressWords progress_words(const LoadedProgram *loaded);

/* --- the host's side --- */

/* Where one pass of one microbatch finds its data and leaves its results. A slot that the pass does not have is NULL;
   runtime/program/opcodes.def says who holds which slot how long. */
typedef struct PassSlots {
    uint32_t chunk;      /* index of the chunk on the rank */
    uint32_t stage;      /* the chunk's stage */
    uint32_t microbatch; /* number of the microbatch in the chunk's pipe */
    uint32_t number;     /* number of the microbatch in the step, over all pipes and replicas; it selects the data */
    uint16_t weights;    /* slot of the version of the weights that F, B and I read; SLOT_NONE: W */
    void *x, *y;         /* input and output activation: messages. NULL at the first, at the last stage */
    void *dx, *dy;       /* their gradients */
    void *context;       /* activations saved for the input gradient */
    void *stash;         /* activations saved for the weight gradient */
    void *gradient;      /* what I leaves for a deferred W */
} PassSlots;

/* An F&B, the F of one microbatch and the backward of another; or an F&F, the F of two microbatches. */
typedef struct PassPair {
    PassSlots forward, backward; /* backward: the second F in an F&F */
    bool both_forward;           /* an F&F */
    bool weights;                /* the backward is a whole B, not I alone */
    int64_t forward_time; /* the host stores how many ns the first F took of the pair; 0: the halves ran at once */
} PassPair;

typedef enum StagePass {
    STAGE_FORWARD,
    STAGE_BACKWARD,
    STAGE_BACKWARD_INPUT,
    STAGE_BACKWARD_WEIGHT,
    STAGE_OVERLAP
} StagePass;

/* What the host does. Each function gets the host's own context. A function that is NULL has nothing to do; forward and
   the two backwards are needed. An error ends the run; the executor adds rank and instruction to its message. */
typedef struct StageTable {
    Status (*forward)(void *host, const PassSlots *slots, Error *error);
    Status (*backward_input)(void *host, const PassSlots *slots, Error *error);
    Status (*backward_weight)(void *host, const PassSlots *slots, Error *error);
    Status (*backward)(void *host, const PassSlots *slots, Error *error); /* NULL: I, then W */
    Status (*overlap)(void *host, PassPair *pair, Error *error);          /* NULL: one half, then the other */

    /* Called before the first step for every F&B and, if the device only enqueues, for every other pass; the slots of
       these passes never move. The host may store one or two pointers in `bound`. `run_bound` then runs first bound[0]
       and then bound[1]. If both stay NULL, the functions above run the pass. Of `work` only the halves that the pass
       has are filled in. */
    Status (*bind)(void *host, StagePass pass, const PassPair *work, void *bound[2], Error *error);
    Status (*run_bound)(void *host, void *bound, Error *error);

    /* Returns the chunk's weight gradient, ChunkPlan.weight_gradient elements. executor_bind calls it once; the memory
       does not move afterwards. */
    void *(*weight_gradient)(void *host, uint32_t chunk);

    /* NORM: all gradients of this rank are complete. Every rank calls it at the same point of the step. */
    Status (*norm)(void *host, Error *error);
    /* UPDATE: one optimizer step of a chunk. Its gradient is zero afterwards. */
    Status (*update)(void *host, uint32_t chunk, Error *error);
    /* U of an asynchronous program: an optimizer step with the gradient of `microbatches` microbatches, from the
       version of the weights in slot `newest` to the one in `next`, which may be the same slot. */
    Status (*update_async)(void *host, uint32_t chunk, uint32_t microbatches, uint16_t newest, uint16_t next,
                           Error *error);

    /* A message from `peer` has arrived in `block`. */
    Status (*received)(void *host, int peer, const void *block, Error *error);
} StageTable;

/* What a chunk needs, in bytes of one slot. All slots of a class are of the size of the rank's largest chunk, as the
   plan counts activations, whichever chunk's. */
typedef struct ChunkPlan {
    size_t message; /* the same for all chunks of all ranks */
    size_t context, stash, gradient;
    size_t weight_gradient; /* elements of the gradient that REDUCE sums over all copies of a stage; 0: none */
    size_t sharded;         /* the last ones of these, which are summed only over the copies with the same shard */
    size_t element;         /* bytes of an element of the weight gradient: 4 or 8 */
} ChunkPlan;

typedef struct ExecutorConfig {
    const LoadedProgram *loaded;
    int rank;
    const StageTable *stages;
    void *host;
    const ChunkPlan *chunks; /* [the rank's chunks] */
    Communicator *pipeline;  /* of all ranks of the program, member r being rank r; see executor_connect */
    /* [the rank's chunks]: among the copies of the chunk's stage in all replicas; an element or all may be NULL */
    Communicator *const *sums;
    Communicator *const *sharded_sums; /* the same for sharded elements, among the copies with the same shard */
    Device *device;     /* whose memory the slots are in; NULL: the host's, and passes are done when they return */
    double deadline;    /* seconds that a device which only enqueues may take for an instruction; <= 0: no limit */
    Progress *progress; /* where this rank's place is written; NULL: nobody watches */
} ExecutorConfig;

/* --- communicators (connect.c) --- */

/* The communicators that a member of the world needs for its program: for messages among all ranks of its replica, and
   for sums over the copies of each stage in all replicas, added replica after replica. All members make them together,
   in the same order. Their numbers (CommunicatorConfig.number) are 0 to 2 * Program.stages + 1. */
typedef struct RankCommunicators {
    Communicator *pipeline;
    Communicator *sums[PROGRAM_CHUNKS_MAX]; /* of the rank's chunks; NULL: the stage has no other copies */
    Communicator *sharded_sums[PROGRAM_CHUNKS_MAX];
    /* for all-to-alls among the replicas of this rank that together hold the shards, in their order; NULL: one shard */
    Communicator *shards;
    size_t bytes; /* of memory that the communicators have allocated */
} RankCommunicators;

/* Makes the communicators of this member. The world has Program.rank_count members for each replica (world_mesh).
   `shards` consecutive replicas together hold one copy of sharded parameters. `device` as in ExecutorConfig. After a
   failure, executor_disconnect releases what was made before it. */
Status executor_connect(World *world, const Program *program, int shards, const ChunkPlan *chunks, Device *device,
                        RankCommunicators *made, Error *error);
void executor_disconnect(RankCommunicators *communicators);

/* --- the executor --- */

typedef struct Executor Executor;

/* What is given must outlive the executor, `chunks` and `sums` apart. */
Status executor_open(const ExecutorConfig *config, Executor **opened, Error *error);
/* Call it, and free the host's memory of slots, only after every rank of this process has ended its last run: threads
   hand each other blocks of this memory. NULL does nothing. */
void executor_close(Executor *executor);

/* The memory of all slots. The host may allocate it, aligned to 64 bytes and zeroed, and hand it over before
   executor_bind, perhaps with memory of its own after it; on a device it must. Otherwise executor_bind does. */
size_t executor_slot_bytes(const Executor *executor);
void executor_use_memory(Executor *executor, void *memory);
/* Host memory that the executor has taken for its tables. */
size_t executor_table_bytes(const Executor *executor);
/* Makes what the runs need, and calls `bind`. Once, before the first run. */
Status executor_bind(Executor *executor, Error *error);

/* Runs the rank's stream from its first instruction to END: a step, or with `evaluating` the forward half. `step` is
   told to those who watch. */
Status executor_run(Executor *executor, bool evaluating, uint64_t step, Error *error);
/* Waits until the device has done all that was enqueued, or the deadline has passed. */
Status executor_settle(Executor *executor, Error *error);

/* When things happened in the last run: ns of this rank's clock. [0] is the beginning, [1 + i] the end of instruction
   i; from [executor_middles()] on, for each F&B in turn, when its F ended, 0 if both halves ran at once. */
const int64_t *executor_clock(const Executor *executor);
size_t executor_clocks(const Executor *executor); /* how many */
size_t executor_middles(const Executor *executor);

/* Bytes of a message; and the block of a message slot between runs, for measurements. */
size_t executor_message_bytes(const Executor *executor);
void **executor_block(Executor *executor, uint32_t slot);

#endif
