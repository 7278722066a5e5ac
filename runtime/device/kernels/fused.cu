#include "fused.cuh"

KERNEL __launch_bounds__(TILE_THREADS, 1) fused_f32(KERNEL_PARAMETER Fused p)
{
    KERNEL_SHARED(shared);
    fused_work<float>(p, shared);
}

KERNEL __launch_bounds__(TILE_THREADS, 1) fused_bf16(KERNEL_PARAMETER Fused p)
{
    KERNEL_SHARED(shared);
    fused_work<Bf16>(p, shared);
}
