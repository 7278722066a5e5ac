#ifndef ORDER_WEIGHT_QUEUE_H
#define ORDER_WEIGHT_QUEUE_H

/* The waiting weight passes of one rank: a first-in-first-out queue over all chunks. Every I enters it, and W takes
   the oldest entry of all chunks (as in DualPipe) or of one chunk. */

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct WaitingWeight {
    uint8_t chunk;
    bool taken;
    uint32_t microbatch;
} WaitingWeight;

typedef struct WeightQueue {
    WaitingWeight *waiting; /* in the order of their I */
    uint32_t count, oldest;
    struct ChunkWeights {
        uint32_t *at;    /* indices in WeightQueue.waiting, in ascending order */
        uint32_t *place; /* [microbatch]: 1 + index in `waiting`; 0: not entered yet */
        uint32_t count, oldest;
    } * chunks;
} WeightQueue;

/* Makes room for `microbatches[chunk]` entries of each chunk. */
void weight_queue_open(WeightQueue *queue, Arena *arena, uint32_t chunks, const uint32_t *microbatches);
/* A second I of a microbatch, which is an error reported elsewhere, changes nothing. */
void weight_queue_put(WeightQueue *queue, uint8_t chunk, uint32_t microbatch);
/* These take a waiting W: the oldest of all, the oldest of a chunk, or that of a microbatch. False: none waits. */
bool weight_queue_take(WeightQueue *queue, uint8_t *chunk, uint32_t *microbatch);
bool weight_queue_take_of(WeightQueue *queue, uint8_t chunk, uint32_t *microbatch);
bool weight_queue_take_this(WeightQueue *queue, uint8_t chunk, uint32_t microbatch);

#endif
