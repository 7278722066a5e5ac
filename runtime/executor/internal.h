#pragma once

/* The inside of an executor, for the files in runtime/executor. */

#include "runtime/device/device.h"
#include "runtime/executor/exchange.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/walk.h"

/* A chunk that the rank holds. */
typedef struct HeldChunk {
    uint32_t stage;
    /* the number of the pipe's first microbatch among the microbatches of the step, over all pipes and replicas */
    uint32_t first;
    ChunkPlan plan;
} HeldChunk;

struct Executor {
    ExecutorConfig config;
    HeldChunk *chunks; /* [the rank's chunks] */
    /* [0] of the program, [1] of its forward half: [instructions], the pointers that StageTable.bind stored for each
       instruction. NULL unless the device only enqueues and the host has `bind` */
    void *(*bound[2])[2];
    uint32_t slots[SLOT_CLASSES]; /* slots of each class; enough for the program and for its forward half */
    size_t bytes[SLOT_CLASSES];   /* bytes of one slot; unused for the class WEIGHTS */
    /* [message slots]: the memory of each slot. Between ranks that are threads, a communicator may deliver a message by
       exchanging two ranks' pointers, so they change during a run */
    void **blocks;
    Exchange exchange;
    char *memory[SLOT_CLASSES]; /* [class] of CONTEXT, STASH and GRADIENT: memory of all slots, one after the other */
    uint32_t longest_stream;
    size_t clocks; /* entries of `clock`: 1 + longest_stream + the largest number of F&Bs and F&Fs in a stream */
    Walk walk;
    int64_t *clock;     /* [clocks] */
    int64_t *middle;    /* points into `clock`: where the next F&B or F&F stores when its first F ended */
    Progress unwatched; /* used as config.progress if the host gave none */
    void *own_memory;   /* memory of the slots, if the host gave none */
    Arena tables;
    size_t table_bytes;
};

/* --- run.c --- */

/* Lets the rank's messages and sums progress between instructions. */
static inline Status executor_progress(const Executor *executor, Error *error)
{
    Communicator *pipeline = executor->config.pipeline;
    return pipeline->run->progress ? pipeline->run->progress(pipeline, error) : STATUS_OK;
}

/* The function of an opcode: runs one instruction. */
typedef Status Execute(Executor *executor, const Instruction *instruction, Error *error);
extern Execute *const executor_execute[OPCODE_COUNT];

/* --- executor.c --- */

/* Allocates memory for the slots if the host has given none. */
Status executor_take_memory(Executor *executor, Error *error);

/* --- enqueue.c: for a device that only enqueues --- */

/* Runs the whole stream that executor->walk has just begun. */
Status executor_enqueue(Executor *executor, Error *error);
/* Records timing event `number`, whose time goes to clock[number]. Does nothing unless the device only enqueues. */
Status executor_mark(Executor *executor, size_t number, Error *error);
