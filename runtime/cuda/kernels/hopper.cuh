#ifndef CUDA_KERNELS_HOPPER_CUH
#define CUDA_KERNELS_HOPPER_CUH

/* bfloat16 products by TMA and wgmma. There is at most one persistent block per multiprocessor. In a block, one thread
   of one warpgroup fills a ring of stages, and two other warpgroups multiply, each 64 rows of the tile. The ring
   continues from tile to tile, so the next tile's operands are loaded while the sums of this one are stored. Two blocks
   may form a cluster: their tiles are one below the other, and each block loads half of b, which both read, into its
   own shared memory and the other's. */

#include "instructions_hopper.cuh"
#include "product.cuh"

enum {
    HOPPER_BOX_BYTES = 64 * HOPPER_TILE_K * 2, /* 64 rows of 64 contiguous elements */
    HOPPER_PART_BYTES = HOPPER_PART * HOPPER_TILE_K * 2,
    HOPPER_SWIZZLE_ATOM = 1024
};
static_assert(HOPPER_TILE_M == HOPPER_PART, "a is one part");

/* Registers per thread: at launch, then of the loading warpgroup and of the two computing ones. All registers of a
   block are in use at launch, so a warpgroup that asks for more waits until another warpgroup gives some up (PTX ISA,
   setmaxnreg). */
enum { HOPPER_REGISTERS = 65536 / HOPPER_THREADS / 8 * 8, LOADING_REGISTERS = 24, COMPUTING_REGISTERS = 240 };
static_assert(LOADING_REGISTERS + 2 * COMPUTING_REGISTERS <= 3 * HOPPER_REGISTERS,
              "the warpgroups' registers are there");

/* The ring of stages in shared memory. The loading thread and each computing thread have a copy of this structure with
   a position of their own. */
struct HopperRing {
    char *stages;
    /* one barrier per stage. full: the bytes of the stage have arrived. empty: the computing warps of all blocks of the
       cluster, eight per block, have read the stage */
    Arrivals *full, *empty;
    unsigned position; /* how many stages the thread that owns this struct has filled or read so far */
    unsigned blocks;   /* number of blocks of the cluster */

    DEVICE HopperRing of(char *stages, Arrivals *arrivals, unsigned position, unsigned blocks)
    {
        return HopperRing{stages, arrivals, arrivals + HOPPER_STAGES, position, blocks};
    }
    DEVICE unsigned stage_of(unsigned position) { return position % HOPPER_STAGES; }
    DEVICE unsigned parity_of(unsigned position) { return position / HOPPER_STAGES % 2; }
};

DEVICE void hopper_begin(const HopperRing &ring)
{
    for (unsigned stage = 0; stage < HOPPER_STAGES; stage++) {
        arrivals_init(ring.full + stage, 1);
        arrivals_init(ring.empty + stage, TILE_THREADS / 32 * ring.blocks);
    }
}

/* Loads HOPPER_PART rows (or columns) of an operand into a stage. If k is the contiguous index, this is one box;
   otherwise it is one box for each 64 elements of the other index. */
template <bool BY_K>
DEVICE void hopper_load(char *to, const TensorMap *map, unsigned first, unsigned k, Arrivals *full, unsigned blocks)
{
    UNROLL for (unsigned box = 0; box < (BY_K ? 1 : HOPPER_PART / 64); box++)
    {
        const unsigned other = first + box * 64, x = BY_K ? k : other, y = BY_K ? other : k;
        if (blocks > 1)
            tensor_load_to_all(to + box * HOPPER_BOX_BYTES, map, x, y, full, blocks);
        else
            tensor_load(to + box * HOPPER_BOX_BYTES, map, x, y, full);
    }
}

/* `columns`: of a tile. */
DEVICE ProductTile hopper_place(const HopperProduct &p, unsigned columns, unsigned tile, unsigned blocks)
{
    const ProductTile first =
        product_tile(p.product.m, p.product.n, blocks * HOPPER_TILE_M, columns, p.band, tile / blocks);
    return ProductTile{first.row + tile % blocks * HOPPER_TILE_M, first.column};
}

template <ProductLayout LAYOUT, unsigned COLUMNS>
DEVICE void hopper_produce(const HopperProduct &p, HopperRing &ring, unsigned tile)
{
    using Layout = ProductOperands<LAYOUT>;
    const ProductTile place = hopper_place(p, COLUMNS, tile, ring.blocks);
    for (unsigned k = 0; k < p.product.k; k += HOPPER_TILE_K) {
        const unsigned number = HopperRing::stage_of(ring.position);
        char *stage = ring.stages + number * HOPPER_STAGE_BYTES;
        Arrivals *full = ring.full + number;
        arrivals_wait(ring.empty + number, HopperRing::parity_of(ring.position) ^ 1);
        arrive_expecting(full, (HOPPER_TILE_M + COLUMNS) * HOPPER_TILE_K * 2);
        hopper_load<Layout::a_by_k>(stage, &p.a, place.row, k, full, 1);
        constexpr unsigned parts = COLUMNS / HOPPER_PART; /* parts of b in a stage */
        UNROLL for (unsigned part = 0; part < parts; part++) if (part % ring.blocks == tile % ring.blocks)
            hopper_load<Layout::b_by_k>(stage + (1 + part) * HOPPER_PART_BYTES, &p.b, place.column + part * HOPPER_PART,
                                        k, full, ring.blocks);
        ring.position++;
    }
}

/* Waits until all stages are empty. No block may end while other blocks of its cluster still arrive at barriers in its
   shared memory. */
DEVICE void hopper_drain(HopperRing &ring)
{
    for (unsigned stage = 0; stage < HOPPER_STAGES; stage++, ring.position++)
        arrivals_wait(ring.empty + HopperRing::stage_of(ring.position), HopperRing::parity_of(ring.position) ^ 1);
}

/* Says that this warp has read the stage at `position`: its first lanes arrive at the `empty` barrier of that stage,
   one lane for each block of the cluster. */
DEVICE void hopper_release(const HopperRing &ring, unsigned position)
{
    const unsigned lane = lane_of_warp();
    Arrivals *empty = ring.empty + HopperRing::stage_of(position);
    if (ring.blocks > 1 && lane < ring.blocks)
        arrive_at(empty, lane);
    else if (ring.blocks == 1 && lane == 0)
        arrive(empty);
}

/* The descriptor of an operand in a stage, from index k of the inner dimension on. */
template <bool BY_K> DEVICE unsigned long long hopper_operand(const char *slab, unsigned k)
{
    return BY_K ? matrix_descriptor(slab + k * 2, 16, HOPPER_SWIZZLE_ATOM)
                : matrix_descriptor(slab + k * 128, HOPPER_BOX_BYTES, HOPPER_SWIZZLE_ATOM);
}

/* Adds 8 of the 64 rows of b in a stage of product_weight to `total`, those with this warp's number modulo 8. Each lane
   adds eight columns, if the tile has so many. */
template <unsigned COLUMNS> DEVICE void hopper_sum_rows(const char *b_slab, float (&total)[8])
{
    static_assert(TILE_THREADS == 256 && COLUMNS <= 256, "8 warps, 32 lanes with 8 columns each");
    const unsigned warp = threadIdx.x / 32, lane = lane_of_warp();
    const char *first = b_slab + lane / 8 * HOPPER_BOX_BYTES + warp * 128 + (lane % 8 ^ warp) * 16;
    if (lane * 8 < COLUMNS)
        UNROLL for (unsigned row = 0; row < HOPPER_TILE_K; row += 8)
        {
            float v[8];
            Elements<Bf16>::load8((const Bf16 *)(first + row * 128), v);
            UNROLL for (int i = 0; i < 8; i++) total[i] += v[i];
        }
    __syncwarp(); /* before hopper_release, which one lane calls for all */
}

/* Adds the totals of all warps to the sums of the tile's columns. Each warp passes its totals to the others in the part
   of `shared_sums` that is its own. */
template <unsigned COLUMNS>
DEVICE void hopper_finish_column_sums(const Product &p, unsigned first_column, const float (&total)[8],
                                      float *shared_sums)
{
    constexpr unsigned part = 16 * HOPPER_SUM_COLUMNS;
    const unsigned column = first_column + threadIdx.x;
    Elements<float>::store8(shared_sums + threadIdx.x / 32 * part + lane_of_warp() * 8, total);
    tile_barrier();
    if (threadIdx.x < COLUMNS && column < p.n) {
        float sum = 0;
        UNROLL for (unsigned warp = 0; warp < 8; warp++) sum += shared_sums[warp * part + threadIdx.x];
        p.column_sums[column] += sum;
    }
    tile_barrier();
}

template <ProductLayout LAYOUT, unsigned COLUMNS>
DEVICE void hopper_consume(const HopperProduct &whole, HopperRing &ring, unsigned tile, char *shared_sums)
{
    using Layout = ProductOperands<LAYOUT>;
    const Product &p = whole.product;
    const ProductTile place = hopper_place(whole, COLUMNS, tile, ring.blocks);
    const unsigned group = threadIdx.x / 128, lane = lane_of_warp();
    const bool sums_columns = LAYOUT == PRODUCT_WEIGHT && p.column_sums && place.row == 0;
    float sum[COLUMNS / 2] = {}, column_total[8] = {};
    for (unsigned k = 0; k < p.k; k += HOPPER_TILE_K) {
        const unsigned stage = HopperRing::stage_of(ring.position);
        const char *a_slab = ring.stages + stage * HOPPER_STAGE_BYTES, *b_slab = a_slab + HOPPER_PART_BYTES;
        /* this warpgroup's 64 rows of a: 64 rows of 128 bytes if k is contiguous, otherwise one box */
        const char *own = a_slab + group * HOPPER_BOX_BYTES;
        arrivals_wait(ring.full + stage, HopperRing::parity_of(ring.position));
        hold_sums(sum);
        group_products_begin();
        UNROLL for (unsigned inner = 0; inner < HOPPER_TILE_K; inner += 16)
            group_product<Layout::a_by_k, Layout::b_by_k>(sum, hopper_operand<Layout::a_by_k>(own, inner),
                                                          hopper_operand<Layout::b_by_k>(b_slab, inner));
        group_products_commit();
        hold_sums(sum);
        if (sums_columns)
            hopper_sum_rows<COLUMNS>(b_slab, column_total); /* while the products are being computed */
        if (k > 0) {
            group_products_wait<1>();
            hopper_release(ring, ring.position - 1);
        }
        ring.position++;
    }
    group_products_wait<0>();
    hold_sums(sum);
    hopper_release(ring, ring.position - 1);
    if (sums_columns)
        hopper_finish_column_sums<COLUMNS>(p, place.column, column_total, (float *)shared_sums);

    /* Each warp stores 64 columns of its sums at a time, through its own part of shared memory. */
    constexpr unsigned columns = HOPPER_SUM_COLUMNS;
    const unsigned warp_row = threadIdx.x / 32 * 16;
    float *own = (float *)shared_sums + warp_row * columns;
    ROLL for (unsigned part = 0; part < COLUMNS / columns; part++)
    {
        UNROLL for (unsigned which = 0; which < COLUMNS / columns; which++) if (which == part)
                UNROLL for (unsigned i = 0; i < columns / 8 * 2; i++) *
            (float2 *)product_sum_at<columns>(own, lane / 4 + i % 2 * 8, i / 2 * 8 + lane % 4 * 2) =
            make_float2(sum[which * columns / 2 + i * 2], sum[which * columns / 2 + i * 2 + 1]);
        __syncwarp();
        const unsigned row = lane / 8, column = lane % 8 * 8;
        if (place.column + part * columns + column < p.n)
            product_finish<Bf16, LAYOUT, 4>(p, place.row + warp_row + row, 4, place.column + part * columns + column,
                                            true, [&](unsigned i, float(&v)[8]) {
                                                Elements<float>::load8(
                                                    product_sum_at<columns>(own, row + i * 4, column), v);
                                            });
        __syncwarp();
    }
}

/* All tiles have COLUMNS columns. */
template <ProductLayout LAYOUT, unsigned COLUMNS> DEVICE void hopper_work_of(const HopperProduct &p, char *shared)
{
    char *behind = shared + HOPPER_STAGES * HOPPER_STAGE_BYTES;
    HopperRing ring = HopperRing::of(shared, (Arrivals *)behind, 0, cluster_blocks());
    const unsigned tiles = hopper_tiles(&p.product, COLUMNS, ring.blocks);
    if (threadIdx.x == 0) {
        hopper_begin(ring);
        arrivals_publish();
    }
    cluster_barrier();
    if (threadIdx.x >= TILE_THREADS) {
        registers_less<LOADING_REGISTERS>();
        if (threadIdx.x == TILE_THREADS) {
            tensor_prefetch(&p.a);
            tensor_prefetch(&p.b);
            for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x)
                hopper_produce<LAYOUT, COLUMNS>(p, ring, tile);
            hopper_drain(ring);
        }
    } else {
        registers_more<COMPUTING_REGISTERS>();
        for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x)
            hopper_consume<LAYOUT, COLUMNS>(p, ring, tile, behind + 1024);
    }
}

template <ProductLayout LAYOUT> DEVICE void hopper_work(const HopperProduct &p, char *shared)
{
    if (p.columns == HOPPER_TILE_N)
        hopper_work_of<LAYOUT, HOPPER_TILE_N>(p, shared);
    else
        hopper_work_of<LAYOUT, HOPPER_NARROW_N>(p, shared);
}

#endif
