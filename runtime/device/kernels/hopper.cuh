#ifndef DEVICE_KERNELS_HOPPER_CUH
#define DEVICE_KERNELS_HOPPER_CUH

/* bfloat16 products by TMA and wgmma: one persistent block a multiprocessor, in which one warpgroup fills a ring of stages
   and two others multiply, 64 rows of the tile each. The ring goes on from tile to tile, so that the next tile's operands come
   while the last one's sums are written. */

#include "instructions_hopper.cuh"
#include "product.cuh"

enum {
    HOPPER_BOX_BYTES = 64 * HOPPER_TILE_K * 2, /* 64 of the contiguous index, 64 rows */
    HOPPER_A_BYTES = HOPPER_TILE_M * HOPPER_TILE_K * 2,
    HOPPER_SWIZZLE_ATOM = 1024
};

/* The ring's state, alike in producers and consumers. */
struct HopperRing {
    char *stages;
    Arrivals *full, *empty; /* a stage's bytes have come; a stage's eight consuming warps are done */
    unsigned stage, parity;

    DEVICE HopperRing of(char *shared)
    {
        Arrivals *arrivals = (Arrivals *)(shared + HOPPER_STAGES * HOPPER_STAGE_BYTES);
        return HopperRing{shared, arrivals, arrivals + HOPPER_STAGES, 0, 0};
    }
};

DEVICE void hopper_next(HopperRing &ring)
{
    if (++ring.stage == HOPPER_STAGES) {
        ring.stage = 0;
        ring.parity ^= 1;
    }
}

/* An operand's slab: by k one box of all rows, else a box for each 64 elements of the other index. */
template <bool BY_K>
DEVICE void hopper_load(char *to, const TensorMap *map, unsigned first, unsigned extent, unsigned k, Arrivals *full)
{
    if (BY_K)
        tensor_load(to, map, k, first, full);
    else
        for (unsigned box = 0; box < extent / 64; box++)
            tensor_load(to + box * HOPPER_BOX_BYTES, map, first + box * 64, k, full);
}

template <ProductLayout LAYOUT> DEVICE void hopper_produce(const HopperProduct &p, HopperRing &ring, ProductTile tile)
{
    using Layout = ProductOperands<LAYOUT>;
    for (unsigned k = 0; k < p.product.k; k += HOPPER_TILE_K) {
        char *stage = ring.stages + ring.stage * HOPPER_STAGE_BYTES;
        Arrivals *full = ring.full + ring.stage;
        arrivals_wait(ring.empty + ring.stage, ring.parity ^ 1);
        arrive_expecting(full, HOPPER_STAGE_BYTES);
        hopper_load<Layout::a_by_k>(stage, &p.a, tile.row, HOPPER_TILE_M, k, full);
        hopper_load<Layout::b_by_k>(stage + HOPPER_A_BYTES, &p.b, tile.column, HOPPER_TILE_N, k, full);
        hopper_next(ring);
    }
}

/* A slab's descriptor at its k-th element. */
template <bool BY_K> DEVICE unsigned long long hopper_operand(const char *slab, unsigned k)
{
    return BY_K ? matrix_descriptor(slab + k * 2, 16, HOPPER_SWIZZLE_ATOM)
                : matrix_descriptor(slab + k * 128, HOPPER_BOX_BYTES, HOPPER_SWIZZLE_ATOM);
}

/* Four lanes have two neighbours each of four groups of eight columns; afterwards each has all of one group, v[2 l + e] from
   lane l of the four. */
DEVICE void hopper_transpose(float (&v)[8])
{
    const unsigned lane = lane_of_warp();
    UNROLL for (unsigned distance = 1; distance <= 2; distance *= 2)
        UNROLL for (unsigned i = 0; i < 2; i++)
            UNROLL for (unsigned e = 0; e < 2; e++) {
                const unsigned low = distance == 1 ? i * 2 : i, high = low + distance;
                const bool upper = lane & distance;
                const float sent = upper ? v[low * 2 + e] : v[high * 2 + e];
                const float got = __shfl_xor_sync(0xffffffffu, sent, (int)distance);
                v[low * 2 + e] = upper ? got : v[low * 2 + e];
                v[high * 2 + e] = upper ? v[high * 2 + e] : got;
            }
}

template <ProductLayout LAYOUT> DEVICE void hopper_consume(const Product &p, HopperRing &ring, ProductTile tile)
{
    using Layout = ProductOperands<LAYOUT>;
    const unsigned group = threadIdx.x / 128, lane = lane_of_warp();
    float sum[128] = {};
    unsigned before = 0; /* the stage that the last group of products reads */
    for (unsigned k = 0; k < p.k; k += HOPPER_TILE_K) {
        const char *a_slab = ring.stages + ring.stage * HOPPER_STAGE_BYTES, *b_slab = a_slab + HOPPER_A_BYTES;
        const char *own = a_slab + group * HOPPER_BOX_BYTES; /* 64 rows of 128 bytes, or one box */
        arrivals_wait(ring.full + ring.stage, ring.parity);
        hold_sums(sum);
        group_products_begin();
        UNROLL for (unsigned inner = 0; inner < HOPPER_TILE_K; inner += 16)
            group_product<Layout::a_by_k, Layout::b_by_k>(sum, hopper_operand<Layout::a_by_k>(own, inner),
                                                          hopper_operand<Layout::b_by_k>(b_slab, inner));
        group_products_commit();
        hold_sums(sum);
        if (k > 0) {
            group_products_wait<1>();
            if (lane == 0)
                arrive(ring.empty + before);
        }
        before = ring.stage;
        hopper_next(ring);
    }
    group_products_wait<0>();
    hold_sums(sum);
    if (lane == 0)
        arrive(ring.empty + before);

    const unsigned first_row = tile.row + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    UNROLL for (unsigned j = 0; j < HOPPER_TILE_N / 8; j += 4)
        UNROLL for (unsigned half = 0; half < 2; half++) {
            float v[8];
            UNROLL for (unsigned i = 0; i < 8; i++)
                v[i] = sum[(j + i / 2) * 4 + half * 2 + i % 2];
            hopper_transpose(v);
            const unsigned row = first_row + half * 8, column = tile.column + (j + lane % 4) * 8;
            if (row < p.m && column < p.n)
                product_finish<Bf16, LAYOUT>(p, row, column, true, v);
        }
}

template <ProductLayout LAYOUT> DEVICE void hopper_work(const HopperProduct &p, char *shared)
{
    HopperRing ring = HopperRing::of(shared);
    char *scratch = shared + HOPPER_STAGES * HOPPER_STAGE_BYTES + 1024;
    const unsigned products = tiles_of(p.product.m, HOPPER_TILE_M) * tiles_of(p.product.n, HOPPER_TILE_N);
    const unsigned sums = p.product.column_sums ? tiles_of(p.product.n, PRODUCT_SUM_COLUMNS) : 0;
    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < HOPPER_STAGES; stage++) {
            arrivals_init(ring.full + stage, 1);
            arrivals_init(ring.empty + stage, TILE_THREADS / 32);
        }
        arrivals_publish();
    }
    block_barrier();
    if (threadIdx.x >= TILE_THREADS) {
        registers_less<40>();
        if (threadIdx.x == TILE_THREADS) {
            tensor_prefetch(&p.a);
            tensor_prefetch(&p.b);
            for (unsigned tile = blockIdx.x; tile < products; tile += gridDim.x)
                hopper_produce<LAYOUT>(p, ring, product_tile(p.product.m, p.product.n, HOPPER_TILE_M, HOPPER_TILE_N, tile));
        }
    } else {
        registers_more<232>();
        for (unsigned tile = blockIdx.x; tile < products + sums; tile += gridDim.x)
            if (tile < products)
                hopper_consume<LAYOUT>(p.product, ring,
                                       product_tile(p.product.m, p.product.n, HOPPER_TILE_M, HOPPER_TILE_N, tile));
            else
                column_sum_tile((const Bf16 *)p.product.b, p.product.column_sums, p.product.k, p.product.n, tile - products,
                                scratch);
    }
}

#endif
