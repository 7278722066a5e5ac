#include "hopper.cuh"

#define HOPPER(name, layout)                                                                                   \
    KERNEL __launch_bounds__(HOPPER_THREADS, 1) hopper_##name(KERNEL_PARAMETER HopperProduct p)                 \
    {                                                                                                          \
        KERNEL_SHARED(shared);                                                                                 \
        hopper_work<layout>(p, shared);                                                                        \
    }

HOPPER(forward, PRODUCT_FORWARD)
HOPPER(input, PRODUCT_INPUT)
HOPPER(weight, PRODUCT_WEIGHT)
