#include "compiler/order/weight_queue.h"

void weight_queue_open(WeightQueue *queue, Arena *arena, uint32_t chunks, const uint32_t *microbatches)
{
    size_t all = 0;
    *queue = (WeightQueue){.chunks = arena_array(arena, chunks, sizeof *queue->chunks)};
    for (uint32_t c = 0; c < chunks; c++) {
        queue->chunks[c].at = arena_array(arena, microbatches[c], sizeof(uint32_t));
        queue->chunks[c].place = arena_array(arena, microbatches[c], sizeof(uint32_t));
        all += microbatches[c];
    }
    queue->waiting = arena_array(arena, all, sizeof *queue->waiting);
}

void weight_queue_put(WeightQueue *queue, uint8_t chunk, uint32_t microbatch)
{
    struct ChunkWeights *own = &queue->chunks[chunk];
    if (own->place[microbatch])
        return;
    own->at[own->count++] = queue->count;
    queue->waiting[queue->count++] = (WaitingWeight){.chunk = chunk, .microbatch = microbatch};
    own->place[microbatch] = queue->count;
}

bool weight_queue_take(WeightQueue *queue, uint8_t *chunk, uint32_t *microbatch)
{
    while (queue->oldest < queue->count && queue->waiting[queue->oldest].taken)
        queue->oldest++;
    if (queue->oldest == queue->count)
        return false;
    WaitingWeight *weight = &queue->waiting[queue->oldest++];
    weight->taken = true;
    *chunk = weight->chunk;
    *microbatch = weight->microbatch;
    return true;
}

bool weight_queue_take_of(WeightQueue *queue, uint8_t chunk, uint32_t *microbatch)
{
    struct ChunkWeights *own = &queue->chunks[chunk];
    while (own->oldest < own->count && queue->waiting[own->at[own->oldest]].taken)
        own->oldest++;
    if (own->oldest == own->count)
        return false;
    WaitingWeight *weight = &queue->waiting[own->at[own->oldest++]];
    weight->taken = true;
    *microbatch = weight->microbatch;
    return true;
}

bool weight_queue_take_this(WeightQueue *queue, uint8_t chunk, uint32_t microbatch)
{
    const uint32_t place = queue->chunks[chunk].place[microbatch];
    if (!place || queue->waiting[place - 1].taken)
        return false;
    queue->waiting[place - 1].taken = true;
    return true;
}
