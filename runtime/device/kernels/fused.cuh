#ifndef DEVICE_KERNELS_FUSED_CUH
#define DEVICE_KERNELS_FUSED_CUH

/* One persistent launch for the tiles of many operations, such as a forward and a backward of different microbatches: where
   one half waits for itself or fills no wave, the other half's tiles go on. Which tile a block works on depends on time, what
   a tile computes does not. */

#include "attention.cuh"
#include "product.cuh"
#include "training.cuh"

/* Each a function of its own, so that each has its own allocation of registers. */
#define FUSED_TILE(name, work)                                                                                 \
    template <typename T> DEVICE_CALL void fused_##name(const Operation &o, unsigned tile, char *shared)       \
    {                                                                                                          \
        (void)tile, (void)shared;                                                                              \
        work;                                                                                                  \
    }
FUSED_TILE(product_forward, (product_work<T, PRODUCT_FORWARD>(o.of.product, tile, shared)))
FUSED_TILE(product_input, (product_work<T, PRODUCT_INPUT>(o.of.product, tile, shared)))
FUSED_TILE(product_weight, (product_work<T, PRODUCT_WEIGHT>(o.of.product, tile, shared)))
FUSED_TILE(attention_forward, (attention_forward_work<T>(o.of.attention, tile, shared)))
FUSED_TILE(attention_delta, (attention_delta_tile<T>(o.of.attention, tile)))
FUSED_TILE(attention_backward, (attention_backward_work<T>(o.of.attention, tile, shared)))
FUSED_TILE(norm_forward, (norm_forward_tile<T>(o.of.norm, tile)))
FUSED_TILE(norm_backward_input, (norm_backward_input_tile<T>(o.of.norm, tile)))
FUSED_TILE(norm_backward_weight, (norm_backward_weight_tile<T>(o.of.norm, tile, shared)))
FUSED_TILE(gelu_forward, (gelu_forward_tile<T>(o.of.elementwise, tile)))
FUSED_TILE(gelu_backward, (gelu_backward_tile<T>(o.of.elementwise, tile)))
FUSED_TILE(accumulate, (accumulate_tile<float>(o.of.elementwise, tile)))
FUSED_TILE(to_float, (convert_tile<T, float>(o.of.elementwise, tile)))
FUSED_TILE(from_float, (convert_tile<float, T>(o.of.elementwise, tile)))
FUSED_TILE(embedding_forward, (embedding_forward_tile<T>(o.of.embedding, tile)))
FUSED_TILE(embedding_backward, (embedding_backward_tile<T>(o.of.embedding, tile, shared)))
FUSED_TILE(cross_entropy, (cross_entropy_tile<T>(o.of.cross_entropy, tile, shared)))
FUSED_TILE(squared_error, (squared_error_tile<T>(o.of.squared_error, tile, shared)))
FUSED_TILE(finish_sum, (finish_sum_tile(o.of.sum, shared)))
FUSED_TILE(copy_bytes, (copy_tile(o.of.copy, tile)))

template <typename T> DEVICE void fused_tile(const Operation &o, unsigned tile, char *shared)
{
    switch (o.kind) {
#define FUSED_CASE(name, field)                  \
    case FUSED_##name:                           \
        fused_##name<T>(o, tile, shared);        \
        break;
        FUSED_OPERATIONS(FUSED_CASE)
    default:
        break;
    }
}

/* The run that a ticket belongs to: the last one that begins at it or before. */
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

/* `shared`: 1024 bytes for the block's next tile, then what operations take. */
template <typename T> DEVICE void fused_work(const Fused &p, char *shared)
{
    unsigned *next = (unsigned *)shared; /* operation and tile, written by thread 0 */
    char *rest = shared + 1024;
    const unsigned first_queue = blockIdx.x < p.reserved ? 1 : 0;
    for (unsigned turn = 0; turn < FUSED_QUEUES; turn++) {
        const unsigned queue = (first_queue + turn) % FUSED_QUEUES;
        for (;;) {
            if (threadIdx.x == 0) {
                const unsigned ticket = draw(p.drawn + queue);
                next[0] = ~0u;
                if (ticket < p.tickets[queue]) {
                    const TileRun &run = p.runs[queue][fused_run(p.runs[queue], p.run_count[queue], ticket)];
                    const Operation &o = p.operations[run.operation];
                    for (unsigned i = 0; i < o.after_count; i++)
                        wait_for_count(p.done + o.after[i], p.operations[o.after[i]].tiles);
                    next[0] = run.operation;
                    next[1] = run.first_tile + (ticket - run.ticket);
                }
            }
            tile_barrier();
            const unsigned operation = next[0], tile = next[1];
            if (operation == ~0u)
                break;
            fused_tile<T>(p.operations[operation], tile, rest);
            tile_barrier();
            if (threadIdx.x == 0)
                count_up(p.done + operation);
        }
        tile_barrier();
    }
}

#endif
