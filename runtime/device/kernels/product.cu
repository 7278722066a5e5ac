#include "product.cuh"

#define PRODUCT(name, layout)                                                                                   \
    TILE_KERNEL((TILE_THREADS, 1), product_##name##_f32, Product, product_work<float, layout>(p, tile, shared)) \
    TILE_KERNEL((TILE_THREADS, 2), product_##name##_bf16, Product, product_work<Bf16, layout>(p, tile, shared))

PRODUCT(forward, PRODUCT_FORWARD)
PRODUCT(input, PRODUCT_INPUT)
PRODUCT(weight, PRODUCT_WEIGHT)
