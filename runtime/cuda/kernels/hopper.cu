#include "attention_hopper_backward.cuh"
#include "fused_hopper.cuh"

#define HOPPER(name, layout) \
    TILE_KERNEL((HOPPER_THREADS, 1), hopper_##name, HopperProduct, hopper_work<layout>(p, shared))

HOPPER(forward, PRODUCT_FORWARD)
HOPPER(input, PRODUCT_INPUT)
HOPPER(weight, PRODUCT_WEIGHT)
TILE_KERNEL((HOPPER_THREADS, 1), hopper_attention_forward, HopperAttention, hopper_attention_work<false>(p, shared))
TILE_KERNEL((HOPPER_THREADS, 1), hopper_attention_backward, HopperAttention, hopper_attention_work<true>(p, shared))
TILE_KERNEL((HOPPER_THREADS, 1), fused_hopper, Fused, fused_hopper_work(p, shared))
