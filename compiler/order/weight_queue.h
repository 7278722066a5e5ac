#pragma once

/* The Ws of one rank whose I has run: a first-in-first-out queue over all chunks. Every I adds an entry; a W takes
   the oldest entry of all chunks (as in DualPipe), the oldest of one chunk, or that of a microbatch. */

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct WaitingWeight {
    uint8_t chunk;
    bool taken;
    uint32_t microbatch;
} WaitingWeight;

typedef struct WeightQueue {
    WaitingWeight *waiting; /* [count]: all entries so far in the order of their I, also those that were taken */
    uint32_t count, oldest;
    struct ChunkWeights {
        uint32_t *at;    /* [count]: the chunk's entries, as indices in `waiting`, in ascending order */
        uint32_t *place; /* [microbatch]: 1 + the index of its entry in `waiting`; 0: it has no entry yet */
        uint32_t count, oldest;
    } * chunks;
} WeightQueue;

/* Makes an empty queue with room for `microbatches[chunk]` entries of each chunk. */
void weight_queue_open(WeightQueue *queue, Arena *arena, uint32_t chunks, const uint32_t *microbatches);
/* Adds an entry. Does nothing for a second I of a microbatch, an error that is reported elsewhere. */
void weight_queue_put(WeightQueue *queue, uint8_t chunk, uint32_t microbatch);
/* Each of these three takes an entry from the queue: the oldest of all chunks (and sets `*chunk`), the oldest of a
   chunk, or that of a microbatch. False: there is none. */
bool weight_queue_take(WeightQueue *queue, uint8_t *chunk, uint32_t *microbatch);
bool weight_queue_take_of(WeightQueue *queue, uint8_t chunk, uint32_t *microbatch);
bool weight_queue_take_this(WeightQueue *queue, uint8_t chunk, uint32_t microbatch);
