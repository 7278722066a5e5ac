#include "layers.cuh"

#define LAYERS(suffix, T)                                                                                           \
    TILE_KERNEL((TILE_THREADS), norm_forward_##suffix, Norm, norm_forward_tile<T>(p, tile))                         \
    TILE_KERNEL((TILE_THREADS), norm_backward_input_##suffix, Norm, norm_backward_input_tile<T>(p, tile))           \
    TILE_KERNEL((TILE_THREADS), norm_backward_weight_##suffix, Norm, norm_backward_weight_tile<T>(p, tile, shared)) \
    TILE_KERNEL((TILE_THREADS), gelu_forward_##suffix, Elementwise, gelu_forward_tile<T>(p, tile))                  \
    TILE_KERNEL((TILE_THREADS), gelu_backward_##suffix, Elementwise, gelu_backward_tile<T>(p, tile))                \
    TILE_KERNEL((TILE_THREADS), embedding_forward_##suffix, Embedding, embedding_forward_tile<T>(p, tile))          \
    TILE_KERNEL((TILE_THREADS), embedding_backward_##suffix, Embedding, embedding_backward_tile<T>(p, tile, shared))

OF_COMPUTE_TYPES(LAYERS)
