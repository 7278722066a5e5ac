#ifndef ORDER_WEIGHT_QUEUE_H
#define ORDER_WEIGHT_QUEUE_H

/* The weight passes of one rank that wait for their turn: one first-in-first-out queue over all chunks, which every I
   enters and from which W takes the oldest, of all chunks (as in DualPipe) or of one. */

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
        uint32_t *at;    /* places in `waiting`, in their order */
        uint32_t *place; /* [microbatch]: 1 + place in `waiting`; 0: has not entered */
        uint32_t count, oldest;
    } * chunks;
} WeightQueue;

/* Room for `microbatches[chunk]` of each chunk. */
void weight_queue_open(WeightQueue *queue, Arena *arena, uint32_t chunks, const uint32_t *microbatches);
/* The second I of a microbatch, which is wrong, changes nothing. */
void weight_queue_put(WeightQueue *queue, uint8_t chunk, uint32_t microbatch);
/* Each gives false when nothing of that kind waits. */
bool weight_queue_take(WeightQueue *queue, uint8_t *chunk, uint32_t *microbatch);
bool weight_queue_take_of(WeightQueue *queue, uint8_t chunk, uint32_t *microbatch);
bool weight_queue_take_this(WeightQueue *queue, uint8_t chunk, uint32_t microbatch);

#endif
