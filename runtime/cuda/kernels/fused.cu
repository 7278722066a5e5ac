#include "fused.cuh"

#define FUSED(suffix, T) TILE_KERNEL((TILE_THREADS, 1), fused_##suffix, Fused, fused_work<T>(p, shared))

OF_COMPUTE_TYPES(FUSED)
