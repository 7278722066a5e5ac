#ifndef CUDA_KERNELS_ATTENTION_HOPPER_CUH
#define CUDA_KERNELS_ATTENTION_HOPPER_CUH

/* Causal attention in bfloat16 by TMA and wgmma, for heads of 64 and 128 columns. Tiles, statistics and the order of
   tiles are those of attention.cuh. Each stage of the ring holds a matrix of 128 rows of a head: first the tile's
   queries, then K and V of each block of keys; V of a block comes after K of the next block. Two warpgroups compute,
   each 64 queries. While a warpgroup computes the exponentials of one block's scores, the tensor cores compute p v of
   the previous block (Shah et al., FlashAttention-3, 2024). */

#include "attention.cuh"
#include "hopper.cuh"

enum { ATTENTION_BOX_BYTES = ATTENTION_TILE * 128 }; /* 64 columns */
static_assert(ATTENTION_TILE == TILE_THREADS / 128 * 64, "a warpgroup has 64 rows of a tile");
static_assert(ATTENTION_TILE * ATTENTION_WIDTH * 2 <= HOPPER_STAGE_BYTES, "a stage holds a matrix");
static_assert(ATTENTION_TILE * ATTENTION_WIDTH * 2 <= HOPPER_SUM_BYTES,
              "the queries find room where products keep sums");

/* The number of blocks of keys that the queries of a tile see. The last of these blocks is on the diagonal. */
DEVICE unsigned attention_key_blocks(const AttentionHead &h) { return h.begin / ATTENTION_TILE + 1; }

/* The order of loads: Q, K of block 0, K of 1, V of 0, K of 2, V of 1, ... V of the last. A block may reach beyond the
   end of its sequence: these rows belong to the next sequence, and after the last sequence they are zero. No query sees
   them as keys, and their results as queries are not stored. */
DEVICE void attention_produce(const HopperAttention &p, HopperRing &ring, unsigned tile)
{
    const AttentionHead h = attention_head(p.attention, tile, false);
    const unsigned first_row = (unsigned)h.first_row, first_column = h.head * h.width,
                   last = 2 * attention_key_blocks(h);
    const bool wide = h.width > 64;
    ROLL for (unsigned matrix = 0; matrix <= last; matrix++)
    {
        const unsigned part = matrix == 0 ? 0 : matrix == last || (matrix > 1 && matrix % 2) ? 2 : 1;
        const unsigned block = (part == 0 ? last - 2 : part == 1 ? matrix : matrix - 2) / 2;
        const unsigned column = part * p.attention.columns + first_column, row = first_row + block * ATTENTION_TILE;
        const unsigned number = HopperRing::stage_of(ring.position);
        char *stage = ring.stages + number * HOPPER_STAGE_BYTES;
        arrivals_wait(ring.empty + number, HopperRing::parity_of(ring.position) ^ 1);
        arrive_expecting(ring.full + number, wide ? 2 * ATTENTION_BOX_BYTES : ATTENTION_BOX_BYTES);
        tensor_load(stage, &p.qkv, column, row, ring.full + number);
        if (wide)
            tensor_load(stage + ATTENTION_BOX_BYTES, &p.qkv, column + 64, row, ring.full + number);
        ring.position++;
    }
}

/* Waits until the next stage of the ring is full, and returns its memory. */
DEVICE const char *attention_take(HopperRing &ring)
{
    const unsigned stage = HopperRing::stage_of(ring.position);
    arrivals_wait(ring.full + stage, HopperRing::parity_of(ring.position));
    ring.position++;
    return ring.stages + stage * HOPPER_STAGE_BYTES;
}

/* s = x z^T, from 64 rows of x and 2 SUMS of z. Each 64 columns of a matrix are a box. */
template <unsigned WIDTH, unsigned SUMS>
DEVICE void attention_group_scores(float (&s)[SUMS], const char *x, const char *z)
{
    UNROLL for (unsigned c = 0; c < WIDTH; c += 16)
        group_product(s, matrix_descriptor(x + c / 64 * HOPPER_BOX_BYTES + c % 64 * 2, 16, HOPPER_SWIZZLE_ATOM),
                      matrix_descriptor(z + c / 64 * (2 * SUMS * 128) + c % 64 * 2, 16, HOPPER_SWIZZLE_ATOM), c > 0);
}

/* sum += p z, from 16 STEPS rows of z. */
template <unsigned SUMS, unsigned STEPS>
DEVICE void attention_group_mix(float (&sum)[SUMS], const unsigned (&p)[STEPS][4], const char *z)
{
    UNROLL for (unsigned i = 0; i < STEPS; i++)
        group_product(sum, p[i], matrix_descriptor(z + i * 16 * 128, STEPS * 16 * 128, HOPPER_SWIZZLE_ATOM));
}

/* The running softmax of a thread's two rows. largest: the largest score so far. total: the sum of the exponentials of
   this thread's scores so far, relative to `largest`. keep: the factor by which the latest block of keys made earlier
   sums smaller. */
struct AttentionRows {
    float largest[2], total[2], keep[2];
};

/* Replaces the scores of a block of keys by their exponentials, and updates `rows`. On the diagonal row r of the tile
   sees keys 0 to r of the block. */
DEVICE void attention_soften(float (&s)[64], AttentionRows &rows, float scale, bool diagonal)
{
    const unsigned lane = lane_of_warp(), row = threadIdx.x / 32 * 16 + lane / 4;
    if (diagonal)
        UNROLL for (unsigned i = 0; i < 64; i++) if (i / 4 * 8 + lane % 4 * 2 + i % 2 > row + i / 2 % 2 * 8) s[i] =
            -INFINITY;
    UNROLL for (unsigned half = 0; half < 2; half++)
    {
        float now = rows.largest[half], sum = 0;
        UNROLL for (unsigned j = 0; j < 16; j++) now = fmaxf(now, fmaxf(s[j * 4 + half * 2], s[j * 4 + half * 2 + 1]));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
        /* `now` is finite: every row sees key 0, which is in the first block, and `largest` never becomes smaller */
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
        rows.keep[half] = power_of_two((rows.largest[half] - now) * scale);
        rows.largest[half] = now;
        UNROLL for (unsigned j = 0; j < 16; j++) UNROLL for (unsigned e = 0; e < 2; e++) sum +=
            s[j * 4 + half * 2 + e] = power_of_two(s[j * 4 + half * 2 + e] * scale - now * scale);
        rows.total[half] = rows.total[half] * rows.keep[half] + sum;
    }
}

/* Converts what was computed from one product's sums to bfloat16 fragments: operand p of attention_group_mix. Each
   thread already holds the elements that its fragments need. */
template <unsigned STEPS, unsigned SUMS>
DEVICE void attention_fragments(unsigned (&fragments)[STEPS][4], const float (&s)[SUMS])
{
    static_assert(SUMS == STEPS * 8, "all of them");
    UNROLL for (unsigned i = 0; i < STEPS * 4; i++) fragments[i / 4][i % 4] = pack_bf16(s[i * 2], s[i * 2 + 1]);
}

/* Computes y and logsumexp of a tile from the matrices in the ring, and stores them. `queries`: shared memory outside
   the ring, to which the tile's queries are copied first. */
template <unsigned WIDTH>
DEVICE void attention_consume(const Attention &p, HopperRing &ring, unsigned tile, char *queries)
{
    const AttentionHead h = attention_head(p, tile, false);
    const unsigned blocks = attention_key_blocks(h), group = threadIdx.x / 128, lane = lane_of_warp();
    const float scale = ATTENTION_LOG2_E / sqrtf((float)WIDTH);
    char *q = queries + group * (64 * WIDTH * 2);
    const char *own = attention_take(ring) + group * HOPPER_BOX_BYTES;
    UNROLL for (unsigned box = 0; box < WIDTH / 64; box++)
            UNROLL for (unsigned i = 0; i < HOPPER_BOX_BYTES; i += 128 * 16) *
        (uint4 *)(q + box * HOPPER_BOX_BYTES + i + threadIdx.x % 128 * 16) =
        *(const uint4 *)(own + box * ATTENTION_BOX_BYTES + i + threadIdx.x % 128 * 16);
    __syncwarp();
    hopper_release(ring, ring.position - 1);
    async_fence_of_shared();
    tile_barrier();

    float s[64], mixed[WIDTH / 2] = {};
    unsigned weights[8][4];
    AttentionRows rows = {{-INFINITY, -INFINITY}, {}, {}};
    const char *next = attention_take(ring);
    group_products_begin();
    attention_group_scores<WIDTH>(s, q, next);
    group_products_commit();
    group_products_wait<0>();
    hold_sums(s);
    hopper_release(ring, ring.position - 1);
    attention_soften(s, rows, scale, blocks == 1);
    attention_fragments(weights, s);
    next = attention_take(ring);
    for (unsigned block = 1; block < blocks; block++) {
        hold_sums(mixed);
        hold_fragments(weights);
        group_products_begin();
        attention_group_scores<WIDTH>(s, q, next);
        group_products_commit();
        next = attention_take(ring);
        group_products_begin();
        attention_group_mix(mixed, weights, next);
        group_products_commit();
        group_products_wait<1>();
        hold_sums(s);
        hopper_release(ring, ring.position - 2);
        attention_soften(s, rows, scale, block == blocks - 1);
        hold_sums(s);
        /* This line must come after attention_soften. Otherwise the compiler would wait for the product p v first, and
           compute the exponentials afterwards. */
        next = attention_take(ring);
        group_products_wait<0>();
        hold_sums(mixed);
        hold_fragments(weights);
        hopper_release(ring, ring.position - 2);
        UNROLL for (unsigned i = 0; i < WIDTH / 2; i++) mixed[i] *= rows.keep[i / 2 % 2];
        attention_fragments(weights, s);
    }
    hold_sums(mixed);
    hold_fragments(weights);
    group_products_begin();
    attention_group_mix(mixed, weights, next);
    group_products_commit();
    group_products_wait<0>();
    hold_sums(mixed);
    hopper_release(ring, ring.position - 1);

    UNROLL for (unsigned half = 0; half < 2; half++)
    {
        const unsigned row = h.begin + threadIdx.x / 32 * 16 + lane / 4 + half * 8;
        float total = rows.total[half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        if (row >= p.sequence)
            continue;
        if (lane % 4 == 0)
            p.logsumexp[(h.first_row + row) * p.heads + h.head] = rows.largest[half] * scale + log2f(total);
        Bf16 *y = (Bf16 *)p.y + (h.first_row + row) * p.columns + h.head * WIDTH + lane % 4 * 2;
        const float inverse = 1 / total;
        UNROLL for (unsigned j = 0; j < WIDTH / 8; j++) * (unsigned *)(y + j * 8) =
            pack_bf16(mixed[j * 4 + half * 2] * inverse, mixed[j * 4 + half * 2 + 1] * inverse);
    }
}

DEVICE void attention_consume(const Attention &p, HopperRing &ring, unsigned tile, char *queries)
{
    if (p.columns / p.heads == 64)
        attention_consume<64>(p, ring, tile, queries);
    else
        attention_consume<128>(p, ring, tile, queries);
}

#endif
