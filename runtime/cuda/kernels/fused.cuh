#ifndef CUDA_KERNELS_FUSED_CUH
#define CUDA_KERNELS_FUSED_CUH

/* One persistent launch for the tiles of many operations, such as a forward and a backward of different microbatches.
   When one half waits for its own results or does not fill a wave, tiles of the other half run. Timing decides which
   tile a block works on, but not what the tile computes. */

#include "attention.cuh"
#include "product.cuh"
#include "training.cuh"

template <typename T> DEVICE void fused_tile(const Operation &o, unsigned tile, char *shared)
{
    switch (o.kind) {
    case CUDA_product_forward: return product_work<T, PRODUCT_FORWARD>(o.of.product, tile, shared);
    case CUDA_product_input: return product_work<T, PRODUCT_INPUT>(o.of.product, tile, shared);
    case CUDA_product_weight: return product_work<T, PRODUCT_WEIGHT>(o.of.product, tile, shared);
    case CUDA_attention_forward: return attention_forward_work<T>(o.of.attention, tile, shared);
    case CUDA_attention_delta: return attention_delta_tile<T>(o.of.attention, tile);
    case CUDA_attention_backward: return attention_backward_work<T>(o.of.attention, tile, shared);
    case CUDA_norm_forward: return norm_forward_tile<T>(o.of.norm, tile);
    case CUDA_norm_backward_input: return norm_backward_input_tile<T>(o.of.norm, tile);
    case CUDA_norm_backward_weight: return norm_backward_weight_tile<T>(o.of.norm, tile, shared);
    case CUDA_gelu_forward: return gelu_forward_tile<T>(o.of.elementwise, tile);
    case CUDA_gelu_backward: return gelu_backward_tile<T>(o.of.elementwise, tile);
    case CUDA_to_float: return convert_tile<T, float>(o.of.elementwise, tile);
    case CUDA_from_float: return convert_tile<float, T>(o.of.elementwise, tile);
    case CUDA_embedding_forward: return embedding_forward_tile<T>(o.of.embedding, tile);
    case CUDA_embedding_backward: return embedding_backward_tile<T>(o.of.embedding, tile, shared);
    case CUDA_cross_entropy: return cross_entropy_tile<T>(o.of.cross_entropy, tile, shared);
    case CUDA_squared_error: return squared_error_tile<T>(o.of.squared_error, tile, shared);
    case CUDA_finish_sum: return finish_sum_tile(o.of.sum, shared);
    case CUDA_copy_bytes: return copy_tile(o.of.copy, tile);
    default: return;
    }
}

/* The index of the run that a ticket belongs to: the last run whose first ticket is not larger. */
DEVICE unsigned fused_run(const TileRun *runs, unsigned count, unsigned ticket)
{
    unsigned low = 0;
    for (unsigned high = count; high - low > 1;) {
        const unsigned middle = (low + high) / 2;
        if (runs[middle].ticket <= ticket)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct FusedTile {
    unsigned operation, tile;
};
#define FUSED_NO_OPERATION (~0u)

/* Called by one thread of a block. Draws the next tile of the block, and waits until all operations that the tile
   depends on are done. FUSED_NO_OPERATION: all tiles have been drawn. */
DEVICE FusedTile fused_next(const Fused &p)
{
    const unsigned ticket = draw(p.drawn);
    if (ticket >= p.tickets)
        return FusedTile{FUSED_NO_OPERATION, 0};
    const TileRun &run = p.runs[fused_run(p.runs, p.run_count, ticket)];
    const Operation &o = p.operations[run.operation];
    for (unsigned i = 0; i < o.after_count; i++)
        wait_for_count(p.done + o.after[i], p.operations[o.after[i]].tiles);
    return FusedTile{run.operation, run.first_tile + (ticket - run.ticket)};
}

/* Block 0 sets the counters to zero for the next launch. The computing threads of all blocks call this. */
DEVICE void fused_clear(const Fused &p)
{
    for (unsigned i = threadIdx.x; i < p.cleared_count && blockIdx.x == 0; i += TILE_THREADS)
        p.cleared[i] = 0;
}

/* Draws and computes tiles until all have been drawn. `shared`: FUSED_HEAD bytes for the block's next tile, then the
   shared memory of the operation. */
template <typename T> DEVICE void fused_work(const Fused &p, char *shared)
{
    FusedTile *next = (FusedTile *)shared;
    fused_clear(p);
    for (;;) {
        if (threadIdx.x == 0)
            *next = fused_next(p);
        tile_barrier();
        const FusedTile now = *next;
        if (now.operation == FUSED_NO_OPERATION)
            return;
        fused_tile<T>(p.operations[now.operation], now.tile, shared + FUSED_HEAD);
        tile_barrier();
        if (threadIdx.x == 0)
            count_up(p.done + now.operation);
    }
}

#endif
