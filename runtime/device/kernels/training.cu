#include "training.cuh"

#define TRAINING(suffix, T)                                                                                    \
    KERNEL __launch_bounds__(TILE_THREADS) cross_entropy_##suffix(KERNEL_PARAMETER CrossEntropy p)              \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        cross_entropy_tile<T>(p, blockIdx.x, shared);                                                          \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) squared_error_##suffix(KERNEL_PARAMETER SquaredError p)              \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        squared_error_tile<T>(p, blockIdx.x, shared);                                                          \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) accumulate_##suffix(KERNEL_PARAMETER Elementwise p)                  \
    {                                                                                                          \
        accumulate_tile<T>(p, blockIdx.x);                                                                     \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) fill_##suffix(KERNEL_PARAMETER Elementwise p)                        \
    {                                                                                                          \
        fill_tile<T>(p, blockIdx.x);                                                                           \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) to_float_##suffix(KERNEL_PARAMETER Elementwise p)                    \
    {                                                                                                          \
        convert_tile<T, float>(p, blockIdx.x);                                                                 \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS) from_float_##suffix(KERNEL_PARAMETER Elementwise p)                  \
    {                                                                                                          \
        convert_tile<float, T>(p, blockIdx.x);                                                                 \
    }

TRAINING(f32, float)
TRAINING(bf16, Bf16)

KERNEL __launch_bounds__(TILE_THREADS) sum_of_squares(KERNEL_PARAMETER Sum p)
{
    KERNEL_SHARED(shared);
    sum_of_squares_tile(p, blockIdx.x, shared);
}

KERNEL __launch_bounds__(TILE_THREADS) finish_sum(KERNEL_PARAMETER Sum p)
{
    KERNEL_SHARED(shared);
    finish_sum_tile(p, shared);
}

KERNEL __launch_bounds__(TILE_THREADS) adamw(KERNEL_PARAMETER AdamWStep p)
{
    adamw_tile(p, blockIdx.x);
}

KERNEL __launch_bounds__(TILE_THREADS) copy_bytes(KERNEL_PARAMETER Copy p)
{
    copy_tile(p, blockIdx.x);
}
