#include "attention.cuh"

#define ATTENTION(suffix, T)                                                                                          \
    TILE_KERNEL((TILE_THREADS, 1), attention_forward_##suffix, Attention, attention_forward_work<T>(p, tile, shared)) \
    TILE_KERNEL((TILE_THREADS), attention_delta_##suffix, Attention, attention_delta_tile<T>(p, tile))                \
    TILE_KERNEL((TILE_THREADS, 1), attention_backward_##suffix, Attention, attention_backward_work<T>(p, tile, shared))

OF_COMPUTE_TYPES(ATTENTION)
