#include "training.cuh"

#define TRAINING(suffix, T)                                                                                   \
    TILE_KERNEL((TILE_THREADS), cross_entropy_##suffix, CrossEntropy, cross_entropy_tile<T>(p, tile, shared)) \
    TILE_KERNEL((TILE_THREADS), squared_error_##suffix, SquaredError, squared_error_tile<T>(p, tile, shared)) \
    TILE_KERNEL((TILE_THREADS), accumulate_##suffix, Elementwise, accumulate_tile<T>(p, tile))                \
    TILE_KERNEL((TILE_THREADS), fill_##suffix, Elementwise, fill_tile<T>(p, tile))                            \
    TILE_KERNEL((TILE_THREADS), to_float_##suffix, Elementwise, convert_tile<T, float>(p, tile))              \
    TILE_KERNEL((TILE_THREADS), from_float_##suffix, Elementwise, convert_tile<float, T>(p, tile))

OF_COMPUTE_TYPES(TRAINING)

/* Compiled only with the float kernels. Devices of both types use these kernels, because master weights are FP32. */
#ifndef ONLY_bf16
TILE_KERNEL((TILE_THREADS), sum_of_squares, Sum, sum_of_squares_tile(p, tile, shared))
TILE_KERNEL((TILE_THREADS), finish_sum, Sum, finish_sum_tile(p, shared))
TILE_KERNEL((TILE_THREADS), adamw, AdamWStep, adamw_tile(p, tile))
TILE_KERNEL((TILE_THREADS), copy_bytes, Copy, copy_tile(p, tile))
#endif
