#include "layers.cuh"

#define LAYERS(suffix, T)                                                                                      \
    KERNEL __launch_bounds__(TILE_THREADS) norm_forward_##suffix(KERNEL_PARAMETER Norm p)                       \
    {                                                                                                          \
        norm_forward_tile<T>(p, blockIdx.x);                                                                   \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) norm_backward_input_##suffix(KERNEL_PARAMETER Norm p)                \
    {                                                                                                          \
        norm_backward_input_tile<T>(p, blockIdx.x);                                                            \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) norm_backward_weight_##suffix(KERNEL_PARAMETER Norm p)               \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        norm_backward_weight_tile<T>(p, blockIdx.x, shared);                                                   \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) gelu_forward_##suffix(KERNEL_PARAMETER Elementwise p)                \
    {                                                                                                          \
        gelu_forward_tile<T>(p, blockIdx.x);                                                                   \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) gelu_backward_##suffix(KERNEL_PARAMETER Elementwise p)               \
    {                                                                                                          \
        gelu_backward_tile<T>(p, blockIdx.x);                                                                  \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) embedding_forward_##suffix(KERNEL_PARAMETER Embedding p)             \
    {                                                                                                          \
        embedding_forward_tile<T>(p, blockIdx.x);                                                              \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) embedding_backward_##suffix(KERNEL_PARAMETER Embedding p)            \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        embedding_backward_tile<T>(p, blockIdx.x, shared);                                                     \
    }

LAYERS(f32, float)
LAYERS(bf16, Bf16)
