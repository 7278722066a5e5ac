#ifndef CUDA_KERNELS_ATTENTION_HOPPER_BACKWARD_CUH
#define CUDA_KERNELS_ATTENTION_HOPPER_BACKWARD_CUH

/* The backward of causal attention by TMA and wgmma, with the tiles, sums and names of attention.cuh. A tile owns 128
   keys or queries, and each of two warpgroups 64 of them: rows of x1 and x2, to which each stage of the ring brings 64
   rows of z1 and z2. The blocks of a tile begin where keys and queries are the same. So the first block that a
   warpgroup needs is on the diagonal, and all others are seen whole. That is the tile's block 0 for one warpgroup and
   block 1 for the other one, to which block 0 means nothing.

   A stage has room for more than a block: after the blocks in four successive stages come the tile's own rows, x1 and
   x2 of the two warpgroups. So these stages become empty only when the tile ends. */

#include "attention_hopper.cuh"

enum {
    BACKWARD_BLOCK = 64,                     /* rows of a block; a warpgroup owns as many rows of the tile */
    BACKWARD_Z2 = 2 * HOPPER_BOX_BYTES,      /* where z2 begins in a stage */
    BACKWARD_OWN = 2 * BACKWARD_Z2,          /* where a quarter of the tile's own rows begins in a stage */
    BACKWARD_STATISTICS = 2 * BACKWARD_BLOCK /* floats for a block: logsumexp of its queries, then delta */
};
static_assert(BACKWARD_BLOCK * ATTENTION_WIDTH * 2 == BACKWARD_Z2, "z1 ends where z2 begins");
static_assert(BACKWARD_OWN + BACKWARD_Z2 <= HOPPER_STAGE_BYTES, "a stage holds three matrices");
static_assert(HOPPER_STAGES == 4, "a stage for each quarter");
static_assert(2 * 2 * BACKWARD_STATISTICS * 4 <= HOPPER_SUM_BYTES, "two blocks' for each warpgroup");

/* One tile. Block b of it begins at row begin + BACKWARD_BLOCK b of the sequence; for queries, whose blocks are keys
   and come in descending order, at begin + BACKWARD_BLOCK (1 - b). */
struct AttentionBackward {
    AttentionHead head;
    unsigned blocks, stages; /* number of blocks; how many stages of the ring the tile takes */

    DEVICE AttentionBackward of(const Attention &p, unsigned tile, bool keys)
    {
        const AttentionHead h = attention_head(p, tile, keys);
        const unsigned blocks =
            keys ? (p.sequence - h.begin + BACKWARD_BLOCK - 1) / BACKWARD_BLOCK : h.begin / BACKWARD_BLOCK + 2;
        return AttentionBackward{h, blocks, blocks < HOPPER_STAGES ? (unsigned)HOPPER_STAGES : blocks};
    }
};

DEVICE void attention_backward_produce(const HopperAttention &p, HopperRing &ring, unsigned tile)
{
    enum { Q, K, V, DY };
    const unsigned key_tiles = attention_blocks(&p.attention, ATTENTION_TILE);
    const bool keys = tile < key_tiles;
    const AttentionBackward t = AttentionBackward::of(p.attention, keys ? tile : tile - key_tiles, keys);
    const unsigned first_row = (unsigned)t.head.first_row, boxes = t.head.width / 64;
    const auto load = [&](char *to, unsigned matrix, unsigned row, Arrivals *full) {
        const TensorMap *map = matrix == DY ? &p.dy : &p.qkv;
        const unsigned column = (matrix == DY ? 0 : matrix * p.attention.columns) + t.head.head * t.head.width;
        ROLL for (unsigned box = 0; box < boxes; box++)
            tensor_load(to + box * HOPPER_BOX_BYTES, map, column + box * 64, first_row + row, full);
    };
    ROLL for (unsigned stage = 0; stage < HOPPER_STAGES; stage++) arrivals_wait(
        ring.empty + HopperRing::stage_of(ring.position + stage), HopperRing::parity_of(ring.position + stage) ^ 1);
    ROLL for (unsigned block = 0; block < t.stages; block++, ring.position++)
    {
        const unsigned number = HopperRing::stage_of(ring.position);
        char *stage = ring.stages + number * HOPPER_STAGE_BYTES;
        Arrivals *full = ring.full + number;
        arrivals_wait(ring.empty + number, HopperRing::parity_of(ring.position) ^ 1);
        arrive_expecting(full,
                         ((block == 0 ? 4 : 0) + (block < t.blocks ? 2 : 0)) * boxes * (unsigned)HOPPER_BOX_BYTES);
        if (block == 0)
            ROLL for (unsigned quarter = 0; quarter < 4; quarter++)
                load(ring.stages + HopperRing::stage_of(ring.position + quarter) * HOPPER_STAGE_BYTES + BACKWARD_OWN,
                     quarter < 2 ? (keys ? K : Q) : (keys ? V : DY), t.head.begin + quarter % 2 * BACKWARD_BLOCK, full);
        if (block < t.blocks) {
            const unsigned row = t.head.begin + (keys ? block : 1 - block) * BACKWARD_BLOCK;
            load(stage, keys ? Q : K, row, full);
            load(stage + BACKWARD_Z2, keys ? DY : V, row, full);
        }
    }
}

/* Waits until the stage at that position is full, and returns its memory. */
DEVICE const char *attention_backward_stage(const HopperRing &ring, unsigned position)
{
    const unsigned stage = HopperRing::stage_of(position);
    arrivals_wait(ring.full + stage, HopperRing::parity_of(position));
    return ring.stages + stage * HOPPER_STAGE_BYTES;
}

/* Stores a warpgroup's rows of a gradient, times `scale`. */
template <unsigned SUMS>
DEVICE void attention_backward_store(Bf16 *to, unsigned pitch, const float (&sum)[SUMS], float scale, unsigned rows)
{
    const unsigned row = threadIdx.x % 128 / 32 * 16 + lane_of_warp() / 4, column = lane_of_warp() % 4 * 2;
    UNROLL for (unsigned half = 0; half < 2; half++) if (row + half * 8 < rows)
            UNROLL for (unsigned j = 0; j < SUMS / 4; j++) *
        (unsigned *)(to + (size_t)(row + half * 8) * pitch + j * 8 + column) =
        pack_bf16(sum[j * 4 + half * 2] * scale, sum[j * 4 + half * 2 + 1] * scale);
}

/* Computes the gradients of a tile's rows from the matrices in the ring, and stores them. `scratch`: shared memory
   outside the ring. The tensor cores compute dp of a block while its exponentials are computed; of keys sum2 += p z2
   while ds is; and sum1 += ds z1 until the next block's s. */
template <unsigned WIDTH, bool KEYS>
DEVICE void attention_backward_consume(const Attention &p, HopperRing &ring, unsigned tile, char *scratch)
{
    const AttentionBackward t = AttentionBackward::of(p, tile, KEYS);
    const unsigned group = threadIdx.x / 128, thread = threadIdx.x % 128;
    const float scale = 1 / sqrtf((float)WIDTH);
    const unsigned first = ring.position + (KEYS ? group : 1 - group), end = ring.position + t.blocks;
    /* of keys: statistics of two blocks, and what this thread loads of each block */
    float *statistics = (float *)scratch + group * (2 * BACKWARD_STATISTICS);
    const float *from = (thread < BACKWARD_BLOCK ? p.logsumexp : p.delta) + t.head.first_row * p.heads + t.head.head;
    float of_row[2][2] = {{INFINITY, 0}, {INFINITY, 0}}; /* of queries: logsumexp and delta of this thread's two rows */
    if (!KEYS)
        UNROLL for (unsigned half = 0; half < 2; half++)
        {
            const unsigned query =
                t.head.begin + group * BACKWARD_BLOCK + thread / 32 * 16 + thread % 32 / 4 + half * 8;
            const size_t at = (t.head.first_row + query) * p.heads + t.head.head;
            if (query < p.sequence) {
                of_row[half][0] = p.logsumexp[at];
                of_row[half][1] = p.delta[at];
            }
        }
    /* a query beyond the end of the sequence has infinite logsumexp, so its exponentials are zero */
    unsigned query = t.head.begin + (KEYS ? group : 1 - group) * BACKWARD_BLOCK + thread % BACKWARD_BLOCK;
    const unsigned sequence = p.sequence, heads = p.heads;
    const auto load = [&] {
        const float beyond = threadIdx.x % 128 < BACKWARD_BLOCK ? INFINITY : 0;
        const float value = query < sequence ? from[(size_t)query * heads] : beyond;
        query += BACKWARD_BLOCK;
        return value;
    };

    const auto own = [&](unsigned quarter) {
        return ring.stages + HopperRing::stage_of(ring.position + quarter) * HOPPER_STAGE_BYTES + BACKWARD_OWN;
    };
    const char *x1 = own(group), *x2 = own(2 + group);
    float s[32] = {}, dp[32] = {}, sum1[WIDTH / 2] = {}, sum2[KEYS ? WIDTH / 2 : 1] = {};
    unsigned p_fragments[4][4] = {}, ds_fragments[4][4] = {};
    arrivals_wait(ring.full + HopperRing::stage_of(ring.position), HopperRing::parity_of(ring.position));
    const char *z = attention_backward_stage(ring, first);
    if (KEYS) {
        statistics[first % 2 * BACKWARD_STATISTICS + thread] = load();
        group_barrier();
    }
    hold_sums(s);
    hold_sums(dp);
    hold_sums(sum2);
    ROLL for (unsigned at = first; at < end; at++)
    {
        const float *exponents = statistics + at % 2 * BACKWARD_STATISTICS + threadIdx.x % 4 * 2,
                    *means = exponents + BACKWARD_BLOCK;
        const float of_following = KEYS ? load() : 0;
        hold_sums(s);
        group_products_begin();
        attention_group_scores<WIDTH>(s, x1, z);
        group_products_commit();
        group_products_wait<1>();
        hold_sums(sum1);
        hold_fragments(ds_fragments);
        if (at > ring.position && at + HOPPER_STAGES <= end)
            hopper_release(ring, at - 1);
        hold_sums(dp);
        group_products_begin();
        attention_group_scores<WIDTH>(dp, x2, z + BACKWARD_Z2);
        group_products_commit();
        group_products_wait<1>();
        hold_sums(s);
        if (at == first) {
            const unsigned me = forget(threadIdx.x) % 128;
            const int diagonal = (int)(me / 32 * 16 + me % 32 / 4 - me % 4 * 2);
            UNROLL for (int i = 0; i < 32; i++)
            {
                const int beside = i / 4 * 8 + i % 2 - i / 2 % 2 * 8;
                if (KEYS ? beside < diagonal : beside > diagonal)
                    s[i] = -INFINITY;
            }
        }
        UNROLL for (unsigned i = 0; i < 32; i++) s[i] = power_of_two(
            s[i] * (scale * ATTENTION_LOG2_E) - (KEYS ? exponents[i / 4 * 8 + i % 2] : of_row[i / 2 % 2][0]));
        if constexpr (KEYS) {
            attention_fragments(p_fragments, s);
            hold_sums(sum2);
            hold_fragments(p_fragments);
            group_products_begin();
            attention_group_mix(sum2, p_fragments, z + BACKWARD_Z2);
            group_products_commit();
        }
        group_products_wait<KEYS ? 1 : 0>();
        hold_sums(dp);
        UNROLL for (unsigned i = 0; i < 32; i++) dp[i] =
            s[i] * (dp[i] - (KEYS ? means[i / 4 * 8 + i % 2] : of_row[i / 2 % 2][1]));
        attention_fragments(ds_fragments, dp);
        hold_sums(sum1);
        hold_fragments(ds_fragments);
        group_products_begin();
        attention_group_mix(sum1, ds_fragments, z);
        group_products_commit();
        if (at + 1 < end)
            z = attention_backward_stage(ring, at + 1);
        if (KEYS) {
            statistics[(at + 1) % 2 * BACKWARD_STATISTICS + threadIdx.x % 128] = of_following;
            group_barrier();
        }
    }
    group_products_wait<0>();
    hold_sums(sum1);
    if constexpr (KEYS)
        hold_sums(sum2);
    ring.position += t.stages;
    ROLL for (unsigned stage = HOPPER_STAGES; stage > 0; stage--) attention_backward_stage(ring, ring.position - stage);
    __syncwarp();
    ROLL for (unsigned stage = HOPPER_STAGES; stage > 0; stage--) hopper_release(ring, ring.position - stage);

    const AttentionHead again = attention_head(p, forget(tile), KEYS);
    const unsigned pitch = 3 * p.columns, row = again.begin + forget(threadIdx.x) / 128 * BACKWARD_BLOCK;
    const unsigned rows = row < p.sequence ? p.sequence - row : 0;
    Bf16 *dq = (Bf16 *)p.dqkv + (again.first_row + row) * pitch + again.head * WIDTH;
    attention_backward_store(KEYS ? dq + p.columns : dq, pitch, sum1, scale, rows);
    if constexpr (KEYS)
        attention_backward_store(dq + 2 * p.columns, pitch, sum2, 1, rows);
}

/* The tile that this thread block computes in round `turn`. Odd rounds assign tiles in reverse order, because tiles
   with lower numbers have more work. */
DEVICE unsigned attention_turn(unsigned turn)
{
    return turn * gridDim.x + (turn % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* Computes this thread block's tiles: those of keys, then those of queries, each in a loop of its own. One loop for
   both needs more registers than there are. */
template <unsigned WIDTH>
DEVICE void attention_backward_consume_all(const Attention &p, HopperRing &ring, char *scratch)
{
    const unsigned keys = attention_blocks(&p, ATTENTION_TILE);
    unsigned turn = 0;
    for (; attention_turn(turn) < keys; turn++)
        attention_backward_consume<WIDTH, true>(p, ring, attention_turn(turn), scratch);
    for (; attention_turn(turn) < 2 * keys; turn++)
        attention_backward_consume<WIDTH, false>(p, ring, attention_turn(turn) - keys, scratch);
}

DEVICE void attention_consume_all(const Attention &p, HopperRing &ring, char *scratch)
{
    for (unsigned turn = 0; attention_turn(turn) < hopper_attention_tiles(&p, 0); turn++) {
        attention_consume(p, ring, attention_turn(turn), scratch);
        tile_barrier(); /* now all threads have read this tile's queries, and the next tile's may overwrite them */
    }
}

template <bool BACKWARD> DEVICE void hopper_attention_work(const HopperAttention &p, char *shared)
{
    char *behind = shared + HOPPER_STAGES * HOPPER_STAGE_BYTES, *scratch = behind + 1024;
    HopperRing ring = HopperRing::of(shared, (Arrivals *)behind, 0, 1);
    const unsigned tiles = hopper_attention_tiles(&p.attention, BACKWARD);
    if (threadIdx.x == 0) {
        hopper_begin(ring);
        arrivals_publish();
    }
    block_barrier();
    if (threadIdx.x >= TILE_THREADS) {
        registers_less<LOADING_REGISTERS>();
        if (threadIdx.x == TILE_THREADS) {
            tensor_prefetch(&p.qkv);
            if (BACKWARD)
                tensor_prefetch(&p.dy);
            for (unsigned turn = 0; attention_turn(turn) < tiles; turn++)
                if (BACKWARD)
                    attention_backward_produce(p, ring, attention_turn(turn));
                else
                    attention_produce(p, ring, attention_turn(turn));
        }
    } else {
        registers_more<COMPUTING_REGISTERS>();
        if (!BACKWARD)
            attention_consume_all(p.attention, ring, scratch);
        else if (p.attention.columns / p.attention.heads == 64)
            attention_backward_consume_all<64>(p.attention, ring, scratch);
        else
            attention_backward_consume_all<128>(p.attention, ring, scratch);
    }
}

#endif
