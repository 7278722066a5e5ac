#include "product.cuh"

/* At least one block of the float kernels, or two of the bfloat16 kernels, must fit on a multiprocessor. */
#define PRODUCT_OF(name, layout, suffix, T)                                                 \
    TILE_KERNEL((TILE_THREADS, sizeof(T) == 4 ? 1 : 2), product_##name##_##suffix, Product, \
                product_work<T, layout>(p, tile, shared))
#define PRODUCT(suffix, T)                          \
    PRODUCT_OF(forward, PRODUCT_FORWARD, suffix, T) \
    PRODUCT_OF(input, PRODUCT_INPUT, suffix, T)     \
    PRODUCT_OF(weight, PRODUCT_WEIGHT, suffix, T)

OF_COMPUTE_TYPES(PRODUCT)
