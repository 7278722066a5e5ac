#include "product.cuh"

#define PRODUCT(name, layout)                                                                                  \
    KERNEL __launch_bounds__(TILE_THREADS, 1) product_##name##_f32(KERNEL_PARAMETER Product p)                  \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        product_work<float, layout>(p, blockIdx.x, shared);                                                    \
    }                                                                                                          \
    KERNEL __launch_bounds__(TILE_THREADS, 2) product_##name##_bf16(KERNEL_PARAMETER Product p)                 \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        product_work<Bf16, layout>(p, blockIdx.x, shared);                                                     \
    }

PRODUCT(forward, PRODUCT_FORWARD)
PRODUCT(input, PRODUCT_INPUT)
PRODUCT(weight, PRODUCT_WEIGHT)
