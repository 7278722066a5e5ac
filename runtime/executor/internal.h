#ifndef EXECUTOR_INTERNAL_H
#define EXECUTOR_INTERNAL_H

/* The inside of an executor, for the files of this folder. */

#include "runtime/device/device.h"
#include "runtime/executor/exchange.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/walk.h"

/* One stage that the rank holds. */
typedef struct HeldChunk {
    uint32_t stage;
    uint32_t first; /* number in the step of the pipe's first microbatch */
    ChunkPlan plan;
} HeldChunk;

struct Executor {
    ExecutorConfig config;
    HeldChunk *chunks;            /* [the rank's chunks] */
    void *(*bound[2])[2];         /* [instructions] of the program and of its forward half: what is bound */
    uint32_t slots[SLOT_CLASSES]; /* how many, for both streams */
    size_t bytes[SLOT_CLASSES];   /* of one slot; of no meaning for versions of weights */
    void **blocks;                /* [message slots]; the communicator may exchange them */
    Exchange exchange;
    char *memory[SLOT_CLASSES]; /* saved activations, deferred gradients: slot after slot */
    uint32_t longest_stream;
    size_t clocks; /* 1 + longest_stream + the most F&Bs of a stream */
    Walk walk;
    int64_t *clock;     /* [clocks] */
    int64_t *middle;    /* of the next F&B, in `clock` */
    Progress unwatched; /* config.progress, if the host gave none */
    void *own_memory;   /* of the slots, if the host gave none */
    Arena tables;
    size_t table_bytes;
};

/* --- run.c --- */

/* Lets messages and sums move while the rank computes. */
static inline Status executor_progress(const Executor *executor, Error *error)
{
    Communicator *pipeline = executor->config.pipeline;
    return pipeline->run->progress ? pipeline->run->progress(pipeline, error) : STATUS_OK;
}

/* What an instruction does. */
typedef Status Execute(Executor *executor, const Instruction *instruction, Error *error);
extern Execute *const executor_execute[OPCODE_COUNT];

/* --- executor.c --- */

/* Memory for the slots, if the host has given none. */
Status executor_take_memory(Executor *executor, Error *error);

/* --- enqueue.c: for a device that only enqueues --- */

/* Runs the stream that executor->walk begins. */
Status executor_enqueue(Executor *executor, Error *error);
/* Marks the middle of an F&B, as the time of clock[number]. */
Status executor_mark(Executor *executor, size_t number, Error *error);

#endif
