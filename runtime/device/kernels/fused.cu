#include "fused.cuh"

TILE_KERNEL((TILE_THREADS, 1), fused_f32, Fused, fused_work<float>(p, shared))
TILE_KERNEL((TILE_THREADS, 1), fused_bf16, Fused, fused_work<Bf16>(p, shared))
