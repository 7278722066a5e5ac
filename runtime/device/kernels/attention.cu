#include "attention.cuh"

#define ATTENTION(suffix, T)                                                                                   \
    KERNEL __launch_bounds__(TILE_THREADS, 1) attention_forward_##suffix(KERNEL_PARAMETER Attention p)          \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        attention_forward_work<T>(p, blockIdx.x, shared);                                                      \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) attention_delta_##suffix(KERNEL_PARAMETER Attention p)               \
    {                                                                                                          \
        attention_delta_tile<T>(p, blockIdx.x);                                                                \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS, 1) attention_backward_##suffix(KERNEL_PARAMETER Attention p)         \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        attention_backward_work<T>(p, blockIdx.x, shared);                                                     \
    }

ATTENTION(f32, float)
ATTENTION(bf16, Bf16)
