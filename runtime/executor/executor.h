#pragma once

/* Runs a proven program on one rank. It walks the rank's instructions, calls the host's stage functions for passes and
   updates, moves messages between ranks, and notes when each instruction ended. The host is the code that uses the
   executor. What a stage computes, its weights, its data and its optimizer belong to the host. The trainer is a host,
   the simulator another one; tests/executor/toy.h is the smallest.

   Order of calls: program_load; then for each rank of this process executor_connect, executor_open, executor_use_memory
   (if the host allocates the slots), executor_bind, executor_run any number of times, executor_close,
   executor_disconnect. An executor is used by one thread at a time. */

#include "base/arena.h"
#include "base/progress.h"
#include "base/status.h"
#include "program/program.h"
#include "runtime/transport/communicator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- programs (load.c) --- */

/* The program that a step runs, and the forward-only program made from it that an evaluation runs. program_load and
   program_derive verify both, and nothing checks them again later. Both use the same slots. */
typedef struct LoadedProgram {
    /* the program as in the file; or its reference (LoadOptions.reference), or its forward half
       (LoadOptions.forward_only) */
    Program *program;
    Program *forward;  /* the forward half of `program`; equal to `program` if that is forward-only */
    uint32_t replicas; /* number of data-parallel replicas; 1 for a reference */
    uint32_t shards;   /* LoadOptions.shards, but at least 1; a reference keeps this number */
    Mesh reference; /* for a reference: the mesh of the run that the reference repeats on one rank; otherwise zeros */
} LoadedProgram;

/* How to run a program. All zero: the program of the file, by one pipeline. */
typedef struct LoadOptions {
    uint32_t replicas; /* number of data-parallel replicas; 0: one */
    /* consecutive replicas that together hold one copy of sharded parameters (those of experts); it divides `replicas`.
       0: one */
    uint32_t shards;
    bool reference; /* the whole model on one rank, with the microbatches of all replicas (program_reference) */
    bool forward_only;
    /* the transport runs messages in the order of their posts (NCCL), so no message is posted early
       (program_post_early) */
    bool in_order;
} LoadOptions;

/* Reads a program and derives what the options ask for. STATUS_BAD_INPUT: the file cannot be read or is not a proven
   program. STATUS_BAD_USAGE: the options do not fit the program. The arena owns all memory. */
Status program_load(const char *path, const LoadOptions *options, Arena *arena, LoadedProgram *loaded, Error *error);
/* Like program_load, for a program that is already in memory. Unless options->in_order or options->reference is set, it
   changes the instructions of `program` itself (program_post_early). */
Status program_derive(Program *program, const LoadOptions *options, Arena *arena, LoadedProgram *loaded, Error *error);

/* The mesh of the members that run the program. */
static inline Mesh loaded_mesh(const LoadedProgram *loaded)
{
    return (Mesh){.ranks = (int)loaded->program->rank_count, .replicas = (int)loaded->replicas};
}

/* The functions that put the progress of ranks that run this program into words (words.c). `loaded` must outlive the
   result. */
ProgressWords progress_words(const LoadedProgram *loaded);

/* --- the host's side --- */

/* Where one pass of one microbatch finds its data and leaves its results. A slot that the pass does not have is NULL;
   program/opcodes.def says how long each slot is held. */
typedef struct PassSlots {
    uint32_t chunk;      /* index of the chunk on the rank */
    uint32_t stage;      /* the chunk's stage */
    uint32_t microbatch; /* number of the microbatch in the chunk's pipe */
    uint32_t number;     /* number of the microbatch in the step, over all pipes and replicas; it selects the data */
    uint16_t weights;    /* slot of the version of the weights that F, B and I read; SLOT_NONE for a W */
    /* input and output activation, both messages. x is NULL at the first stage, y at the last stage */
    void *x, *y;
    void *dx, *dy;  /* their gradients */
    void *context;  /* activations saved for the input gradient */
    void *stash;    /* activations saved for the weight gradient; I may read them, too */
    void *gradient; /* what I saves for the deferred weight gradient (W) */
    /* W only: the components of a layer whose weight gradients the recipe of an F&B puts off, as bits 1 << ModelPart;
       0: none. A W within the F&B computes all others; the W after the F&B computes these alone (only_put_off) */
    uint32_t put_off;
    bool only_put_off;
} PassSlots;

/* An F&B, the F of one microbatch and the backward of another; or an F&F, the F of two microbatches. */
typedef struct PassPair {
    PassSlots forward, backward; /* in an F&F `backward` is the second F */
    bool both_forward;           /* an F&F */
    /* whether the backward computes weight gradients: true for a B, or an I whose recipe puts only some of them off;
       false for an I alone and in an F&F */
    bool weights;
    /* `overlap` stores here how many ns the first F took; 0 if both halves ran at once or the device only enqueues */
    int64_t forward_time;
} PassPair;

typedef enum StagePass {
    STAGE_FORWARD,
    STAGE_BACKWARD,
    STAGE_BACKWARD_INPUT,
    STAGE_BACKWARD_WEIGHT,
    STAGE_OVERLAP
} StagePass;

/* The functions of the host. Each gets ExecutorConfig.host. A function may be NULL if there is nothing to do, except
   pass. An error ends the run; the executor adds rank and instruction to its message. */
typedef struct StageTable {
    /* Runs an F, B, I or W. A B computes what an I and then a W compute. */
    Status (*pass)(void *host, StagePass pass, const PassSlots *slots, Error *error);
    /* NULL: the executor runs the first half, then the second */
    Status (*overlap)(void *host, PassPair *pair, Error *error);

    /* Called before the first step for every F&B and F&F of the program that a step runs. If the device only enqueues,
       also for every other pass of that program and every pass of its forward half. `work` has only the halves that the
       pass has. On a device that only enqueues, slots never move, and the host may store one or two pointers in
       `bound`: then the executor calls `run_bound` with bound[0], then with bound[1], instead of the functions above.
       If both stay NULL, or on another device, the functions above run the pass. */
    Status (*bind)(void *host, StagePass pass, const PassPair *work, void *bound[2], Error *error);
    Status (*run_bound)(void *host, void *bound, Error *error);

    /* Returns the chunk's weight gradient, ChunkPlan.weight_gradient elements. executor_bind calls it once for each
       chunk whose gradient is summed; the memory does not move afterwards. */
    void *(*weight_gradient)(void *host, uint32_t chunk);

    /* NORM: all gradients of this rank are complete, so the host computes their norm. In a synchronous program every
       rank calls it once in a step, so it may be a collective. */
    Status (*norm)(void *host, Error *error);
    /* UPDATE: one optimizer step of a chunk. It must leave the chunk's gradient zero. */
    Status (*update)(void *host, uint32_t chunk, Error *error);
    /* U of an asynchronous program: an optimizer step with the gradient of `microbatches` microbatches. Reads the
       version of the weights in slot `newest` and writes the next version to slot `next`, which may be the same
       slot. */
    Status (*update_async)(void *host, uint32_t chunk, uint32_t microbatches, uint16_t newest, uint16_t next,
                           Error *error);

    /* Called after the WAIT of a receive: the message from `peer` is in `block`. */
    Status (*received)(void *host, int peer, const void *block, Error *error);
} StageTable;

/* The bytes that a chunk needs in a slot of each class. All slots of a class on a rank are as large as its largest
   chunk needs, because any chunk may use any slot. */
typedef struct ChunkPlan {
    size_t message; /* bytes of a message; equal for all chunks of all ranks */
    size_t context, stash, gradient;
    /* elements of the weight gradient that REDUCE sums over the copies of the stage; 0 if nothing is summed */
    size_t weight_gradient;
    size_t sharded; /* how many of these elements, the last ones, are summed only over the copies with the same shard */
    size_t element; /* bytes of an element of the weight gradient: 4 or 8 */
} ChunkPlan;

typedef struct ExecutorConfig {
    const LoadedProgram *loaded;
    int rank;
    const StageTable *stages;
    void *host;
    const ChunkPlan *chunks; /* [the rank's chunks] */
    /* the communicator among all ranks of this replica; member r is rank r. See executor_connect */
    Communicator *pipeline;
    /* [chunks of the rank]: the communicator among all copies of the chunk's stage in all replicas; NULL for a chunk
       whose gradient is not summed. The pointer itself is NULL if the rank sums no gradients */
    Communicator *const *sums;
    /* [chunks of the rank]: the communicators that sum sharded elements, among the copies with the same shard. NULL as
       in `sums` */
    Communicator *const *sharded_sums;
    /* the device whose memory has the slots; NULL: slots are in the host's memory, and a pass is done when its function
       returns */
    Device *device;
    double deadline;    /* seconds that a device which only enqueues may take for an instruction; <= 0: no limit */
    Progress *progress; /* where the executor writes the rank's position for watchers; NULL: there are none */
} ExecutorConfig;

/* --- communicators (connect.c) --- */

/* The communicators that a member of the world needs for its program: one for messages among all ranks of its replica,
   those for sums over the copies of each stage in all replicas, and one for all-to-alls. Sums add the copies of replica
   0 first, then those of replica 1, and so on. All members make them together, in the same order. Their numbers
   (CommunicatorConfig.number) are 0 to 2 * Program.stages + 1. */
typedef struct RankCommunicators {
    Communicator *pipeline;
    /* [chunks of the rank]; NULL: the stage has no other copies, or nothing is to be summed */
    Communicator *sums[PROGRAM_CHUNKS_MAX];
    Communicator *sharded_sums[PROGRAM_CHUNKS_MAX]; /* likewise, for sharded elements */
    /* for all-to-alls: among the members with this rank in the consecutive replicas that together hold all shards, in
       the order of the shards; NULL: there is only one shard */
    Communicator *shards;
    size_t bytes; /* the sum of Communicator.bytes of all of these */
} RankCommunicators;

/* Makes the communicators of this member. The world has Program.rank_count members for each replica (world_mesh).
   `shards` consecutive replicas together hold one copy of sharded parameters. `device` as in ExecutorConfig. After a
   failure, executor_disconnect releases the communicators made so far. */
Status executor_connect(World *world, const Program *program, int shards, const ChunkPlan *chunks, Device *device,
                        RankCommunicators *made, Error *error);
void executor_disconnect(RankCommunicators *communicators);

/* --- the executor --- */

typedef struct Executor Executor;

/* What `config` points to must outlive the executor, except `chunks`, `sums` and `sharded_sums`. */
Status executor_open(const ExecutorConfig *config, Executor **opened, Error *error);
/* Closes an executor; NULL does nothing. Call it, and free the memory of the slots, only after every rank of this
   process has ended its last run: until then, threads exchange blocks of this memory. */
void executor_close(Executor *executor);

/* The bytes of all slots. The host may allocate this memory, aligned to 64 bytes and zeroed, and pass it to
   executor_use_memory before executor_bind; if the slots are in a device's memory, it must. Otherwise executor_bind
   allocates it. */
size_t executor_slot_bytes(const Executor *executor);
void executor_use_memory(Executor *executor, void *memory);
/* Host memory that the executor has taken for its tables. */
size_t executor_table_bytes(const Executor *executor);
/* Allocates the memory for the slots if executor_use_memory was not called, asks the host for the weight gradients that
   are summed, and calls StageTable.bind. Call it once, before the first run. */
Status executor_bind(Executor *executor, Error *error);

/* Runs the rank's stream from its first instruction to END: a step, or with `evaluating` the forward half. `step`: the
   number of the step, for watchers. */
Status executor_run(Executor *executor, bool evaluating, uint64_t step, Error *error);
/* Waits until the device has done everything that was enqueued. Fails if the deadline passes first. */
Status executor_settle(Executor *executor, Error *error);

/* The times of the last run, in ns of this rank's clock. [0]: when the run began. [1 + i]: when instruction i ended.
   [executor_middles() + k], for the k-th F&B or F&F: when its first F ended. If components of both halves alternated,
   this entry is the instruction's beginning plus the total time of its first F. It is 0 if both halves ran at once, or
   alternated on a device that only enqueues. */
const int64_t *executor_clock(const Executor *executor);
size_t executor_clocks(const Executor *executor); /* how many */
size_t executor_middles(const Executor *executor);

/* For measurements between runs: the bytes of a message, and the pointer to the block of a message slot. */
size_t executor_message_bytes(const Executor *executor);
void **executor_block(Executor *executor, uint32_t slot);
