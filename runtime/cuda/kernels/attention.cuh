#ifndef CUDA_KERNELS_ATTENTION_CUH
#define CUDA_KERNELS_ATTENTION_CUH

/* Causal attention that never stores a matrix of sequence x sequence (Dao et al., 2022; Dao, 2023). A tile owns 128 or
   64 (attention_fit) queries of a head, or, in one half of the backward pass, keys. Each of its warps owns 16 of them.
   The tile loops over blocks of keys that its queries see, or of queries that see its keys. With x1, x2 the tile's two
   matrices and z1, z2 those of a block,

     forward             x1 = Q           z = K, V    s = x1 z1^T, p = softmax(s), sum2 += p z2
     backward, queries   x = Q, dY        z = K, V    s = x1 z1^T, dp = x2 z2^T, ds = p (dp - delta), sum1 += ds z1
     backward, keys      x = K, V         z = Q, dY   the same with s^T, and also sum2 += p z2

   So every sum has one owner and the same order in each run; the price is that s and dp are computed twice.

   The warp's products use the fragments of mma.m16n8k16 for both element types; float computes them with plain
   multiply-adds. */

#include "elements.cuh"

template <typename T> struct AttentionBlock;
template <> struct AttentionBlock<Bf16> {
    enum { FORWARD = 64, BACKWARD = 32, STAGES = 2 };
};
template <> struct AttentionBlock<float> {
    enum { FORWARD = 16, BACKWARD = 16, STAGES = 1 };
};

/* The rows of a tile and the stages of the ring, as attention_fit chose them on the host. GPUs of compute capability
   9.0 and 10.0 have enough shared memory for the largest values, so these are constants in their machine code. Other
   machine code runs on several kinds of GPUs and reads both from the parameters. */
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
DEVICE unsigned attention_rows(const Attention &) { return ATTENTION_TILE; }
template <typename T> DEVICE unsigned attention_stages(const Attention &) { return AttentionBlock<T>::STAGES; }
#else
DEVICE unsigned attention_rows(const Attention &p) { return p.tile; }
template <typename T> DEVICE unsigned attention_stages(const Attention &p) { return p.stages; }
#endif

/* Loads `rows` rows of a head into shared memory. Rows from `valid_rows` on and columns from `valid_columns` on become
   zero. */
template <typename T, int WIDTH>
DEVICE void attention_load(T *shared, unsigned rows, const T *from, unsigned pitch, unsigned valid_rows,
                           unsigned valid_columns, bool aligned)
{
    constexpr unsigned chunk = 16 / sizeof(T), chunks = WIDTH / chunk, shared_pitch = WIDTH + chunk;
    for (unsigned at = threadIdx.x; at < rows * chunks; at += TILE_THREADS) {
        const unsigned row = at / chunks, column = at % chunks * chunk;
        T *to = shared + row * shared_pitch + column;
        const T *source = from + (size_t)(row < valid_rows ? row : 0) * pitch + column;
        const unsigned valid = row < valid_rows && column < valid_columns ? smaller(chunk, valid_columns - column) : 0;
        if (aligned)
            copy_async(to, valid ? source : from, valid * (unsigned)sizeof(T));
        else
            UNROLL for (unsigned i = 0; i < chunk; i++) to[i] = i < valid ? source[i] : T{};
    }
}

/* s[16, 8 BLOCKS] = x z^T, from 16 rows of x and 8 BLOCKS of z in shared memory. */
template <int WIDTH, int BLOCKS> DEVICE void attention_scores(float (&s)[BLOCKS][4], const Bf16 *x, const Bf16 *z)
{
    constexpr unsigned pitch = WIDTH + 8;
    const unsigned lane = lane_of_warp(), inner = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    UNROLL for (int j = 0; j < BLOCKS; j++) UNROLL for (int i = 0; i < 4; i++) s[j][i] = 0;
    UNROLL for (unsigned k = 0; k < WIDTH; k += 16)
    {
        unsigned a[4], b[4];
        load_matrices(a, x + (inner + first) * pitch + k + second);
        UNROLL for (unsigned j = 0; j < BLOCKS; j += 2)
        {
            load_matrices(b, z + (j * 8 + inner + second) * pitch + k + first);
            multiply_fragments(s[j], a, b[0], b[1]);
            multiply_fragments(s[j + 1], a, b[2], b[3]);
        }
    }
}

/* sum[16, WIDTH] += p z, p[16, 8 BLOCKS] in registers, z in shared memory. */
template <int WIDTH, int BLOCKS>
DEVICE void attention_mix(float (&sum)[WIDTH / 8][4], const float (&p)[BLOCKS][4], const Bf16 *z)
{
    constexpr unsigned pitch = WIDTH + 8;
    const unsigned lane = lane_of_warp(), inner = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    UNROLL for (unsigned j = 0; j < BLOCKS; j += 2)
    {
        const unsigned a[4] = {pack_bf16(p[j][0], p[j][1]), pack_bf16(p[j][2], p[j][3]),
                               pack_bf16(p[j + 1][0], p[j + 1][1]), pack_bf16(p[j + 1][2], p[j + 1][3])};
        UNROLL for (unsigned column = 0; column < WIDTH; column += 16)
        {
            unsigned b[4];
            load_matrices_transposed(b, z + (j * 8 + inner + first) * pitch + column + second);
            multiply_fragments(sum[column / 8], a, b[0], b[1]);
            multiply_fragments(sum[column / 8 + 1], a, b[2], b[3]);
        }
    }
}

template <int WIDTH, int BLOCKS> DEVICE void attention_scores(float (&s)[BLOCKS][4], const float *x, const float *z)
{
    constexpr unsigned pitch = WIDTH + 4;
    const unsigned row = lane_of_warp() / 4, column = lane_of_warp() % 4 * 2;
    UNROLL for (unsigned j = 0; j < BLOCKS; j++)
    {
        UNROLL for (int i = 0; i < 4; i++) s[j][i] = 0;
        const float *x0 = x + row * pitch, *x1 = x0 + 8 * pitch, *z0 = z + (j * 8 + column) * pitch, *z1 = z0 + pitch;
        ROLL for (unsigned k = 0; k < WIDTH; k++)
        {
            s[j][0] += x0[k] * z0[k], s[j][1] += x0[k] * z1[k];
            s[j][2] += x1[k] * z0[k], s[j][3] += x1[k] * z1[k];
        }
    }
}

template <int WIDTH, int BLOCKS>
DEVICE void attention_mix(float (&sum)[WIDTH / 8][4], const float (&p)[BLOCKS][4], const float *z)
{
    constexpr unsigned pitch = WIDTH + 4;
    const unsigned lane = lane_of_warp(), column = lane % 4 * 2;
    UNROLL for (unsigned j = 0; j < BLOCKS; j++) ROLL for (unsigned pair = 0; pair < 4; pair++)
        UNROLL for (unsigned k = 0; k < 2; k++)
    {
        /* the lane that holds the elements of p for this thread's rows and this pair of columns */
        const int owner = (int)(lane / 4 * 4 + pair);
        const float p0 = __shfl_sync(0xffffffffu, p[j][k], owner), p1 = __shfl_sync(0xffffffffu, p[j][2 + k], owner);
        UNROLL for (unsigned c = 0; c < WIDTH / 8; c++)
        {
            const float2 v = *(const float2 *)(z + (j * 8 + pair * 2 + k) * pitch + c * 8 + column);
            sum[c][0] += p0 * v.x, sum[c][1] += p0 * v.y;
            sum[c][2] += p1 * v.x, sum[c][3] += p1 * v.y;
        }
    }
}

/* One head in one sequence, and a tile: some rows of that sequence. */
struct AttentionHead {
    size_t first_row;            /* the sequence's first row in qkv */
    unsigned head, width, begin; /* begin: the tile's first row in the sequence */
};

/* The head and the rows of tile number `tile`. The tiles with most work have the lowest numbers: those of the last
   queries, or (`keys`) of the first keys. */
DEVICE AttentionHead attention_head(const Attention &p, unsigned tile, bool keys)
{
    const unsigned rows = attention_rows(p), tiles = (p.sequence + rows - 1) / rows;
    const unsigned heads = p.rows / p.sequence * p.heads, which = tile % heads,
                   place = keys ? tile / heads : tiles - 1 - tile / heads;
    return AttentionHead{(size_t)(which / p.heads) * p.sequence, which % p.heads, p.columns / p.heads, place * rows};
}

/* 1 / ln 2: scores are kept as exponents of two. */
#define ATTENTION_LOG2_E 1.4426950408889634f

template <typename T, int WIDTH>
DEVICE void attention_store(T *to, size_t pitch, const float (&sum)[WIDTH / 8][4], const float (&scale)[2],
                            unsigned row, unsigned rows, unsigned columns)
{
    const unsigned first_column = lane_of_warp() % 4 * 2;
    UNROLL for (unsigned half = 0; half < 2; half++) UNROLL for (unsigned c = 0; c < WIDTH / 8; c++)
        UNROLL for (unsigned e = 0; e < 2; e++)
    {
        const unsigned at = row + half * 8, column = c * 8 + first_column + e;
        if (at < rows && column < columns)
            to[at * pitch + column] = Elements<T>::of(sum[c][half * 2 + e] * scale[half]);
    }
}

template <typename T, int WIDTH> DEVICE void attention_forward_tile(const Attention &p, unsigned tile, char *shared)
{
    constexpr int BLOCK = AttentionBlock<T>::FORWARD, BLOCKS = BLOCK / 8;
    constexpr unsigned pitch = WIDTH + 16 / sizeof(T), block_size = BLOCK * pitch;
    const unsigned rows = attention_rows(p), stages = attention_stages<T>(p);
    const AttentionHead h = attention_head(p, tile, false);
    const bool aligned = h.width * sizeof(T) % 16 == 0;
    const unsigned row_pitch = 3 * p.columns;
    const T *q = (const T *)p.qkv + h.first_row * row_pitch + h.head * h.width, *k = q + p.columns, *v = k + p.columns;
    T *x = (T *)shared, *z = x + rows * pitch;
    const unsigned end = smaller(p.sequence, h.begin + rows), blocks = tiles_of(end, BLOCK);
    const unsigned lane = lane_of_warp(), own = threadIdx.x / 32 * 16, row = h.begin + own + lane / 4;
    const float scale = ATTENTION_LOG2_E / sqrtf((float)h.width);

    const auto load = [&](unsigned block) {
        T *to = z + (block & (stages - 1)) * (2 * block_size);
        if (block < blocks) {
            const unsigned first = block * BLOCK, valid = end - first;
            attention_load<T, WIDTH>(to, BLOCK, k + (size_t)first * row_pitch, row_pitch, valid, h.width, aligned);
            attention_load<T, WIDTH>(to + block_size, BLOCK, v + (size_t)first * row_pitch, row_pitch, valid, h.width,
                                     aligned);
        }
        copy_async_commit();
    };
    attention_load<T, WIDTH>(x, rows, q + (size_t)h.begin * row_pitch, row_pitch, end - h.begin, h.width, aligned);
    load(0);
    float mixed[WIDTH / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
    for (unsigned block = 0; block < blocks; block++) {
        const T *z1 = z + (block & (stages - 1)) * (2 * block_size), *z2 = z1 + block_size;
        if (stages > 1)
            load(block + 1);
        else
            copy_async_commit(); /* of nothing */
        copy_async_wait<1>();
        tile_barrier();
        /* false: this warp has no rows, or all keys of the block come after its queries, so it skips the block */
        if ((rows == ATTENTION_TILE || own < rows) && block * BLOCK <= h.begin + own + 15) {
            float s[BLOCKS][4];
            attention_scores<WIDTH, BLOCKS>(s, x + own * pitch, z1);
            UNROLL for (unsigned half = 0; half < 2; half++)
            {
                const unsigned query = row + half * 8;
                float now = largest[half];
                UNROLL for (unsigned j = 0; j < BLOCKS; j++) UNROLL for (unsigned e = 0; e < 2; e++)
                {
                    const unsigned key = block * BLOCK + j * 8 + lane % 4 * 2 + e;
                    float &score = s[j][half * 2 + e];
                    score = key <= query && key < end ? score * scale : -INFINITY;
                    now = fmaxf(now, score);
                }
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
                /* `now` is finite: each row sees key 0, which is in the first block */
                const float keep = exp2f(largest[half] - now);
                largest[half] = now;
                total[half] *= keep;
                UNROLL for (unsigned c = 0; c < WIDTH / 8; c++) mixed[c][half * 2] *= keep,
                    mixed[c][half * 2 + 1] *= keep;
                UNROLL for (unsigned j = 0; j < BLOCKS; j++) UNROLL for (unsigned e = 0; e < 2; e++) total[half] +=
                    s[j][half * 2 + e] = exp2f(s[j][half * 2 + e] - now);
            }
            attention_mix<WIDTH, BLOCKS>(mixed, s, z2);
        }
        tile_barrier();
        if (stages == 1)
            load(block + 1);
    }
    float inverse[2];
    UNROLL for (unsigned half = 0; half < 2; half++)
    {
        total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
        total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
        inverse[half] = 1 / total[half];
        if (lane % 4 == 0 && row + half * 8 < end)
            p.logsumexp[(h.first_row + row + half * 8) * p.heads + h.head] = largest[half] + log2f(total[half]);
    }
    attention_store<T, WIDTH>((T *)p.y + h.first_row * p.columns + h.head * h.width, p.columns, mixed, inverse, row,
                              end, h.width);
    copy_async_wait<0>();
    tile_barrier();
}

/* delta of a row and a head: the mean of dp with the weights p, which equals the inner product of dy and y (Dao et al.,
   2022). Eight lanes compute GROUPS deltas, whose loads are in flight together. */
template <typename T> DEVICE void attention_delta_tile(const Attention &p, unsigned tile)
{
    constexpr unsigned AT_ONCE = TILE_THREADS / 8, GROUPS = ATTENTION_DELTAS / AT_ONCE;
    const unsigned width = p.columns / p.heads;
    const size_t first = (size_t)tile * ATTENTION_DELTAS + threadIdx.x / 8, deltas = (size_t)p.rows * p.heads;
    float sum[GROUPS] = {};
    by_alignment(width, [&](bool aligned) {
        for (unsigned c = threadIdx.x % 8 * 8; c < width; c += 8 * 8) {
            float y[GROUPS][8], dy[GROUPS][8];
            UNROLL for (unsigned g = 0; g < GROUPS; g++)
            {
                const size_t which = first + g * AT_ONCE;
                const unsigned end = which < deltas ? width : 0; /* beyond the last delta there are zeros */
                /* a row's heads follow each other */
                load8((const T *)p.y + which * width, c, end, aligned, y[g]);
                load8((const T *)p.dy + which * width, c, end, aligned, dy[g]);
            }
            UNROLL for (unsigned g = 0; g < GROUPS; g++) UNROLL for (int i = 0; i < 8; i++) sum[g] +=
                y[g][i] * dy[g][i];
        }
    });
    UNROLL for (unsigned g = 0; g < GROUPS; g++)
    {
        UNROLL for (int distance = 4; distance > 0; distance /= 2) sum[g] +=
            __shfl_xor_sync(0xffffffffu, sum[g], distance);
        if (threadIdx.x % 8 == 0 && first + g * AT_ONCE < deltas)
            p.delta[first + g * AT_ONCE] = sum[g];
    }
}

template <typename T, int WIDTH, bool KEYS>
DEVICE void attention_backward_tile(const Attention &p, unsigned tile, char *shared)
{
    constexpr int BLOCK = AttentionBlock<T>::BACKWARD, BLOCKS = BLOCK / 8;
    constexpr unsigned pitch = WIDTH + 16 / sizeof(T), block_size = BLOCK * pitch;
    const unsigned rows = attention_rows(p), stages = attention_stages<T>(p);
    const AttentionHead h = attention_head(p, tile, KEYS);
    const bool aligned = h.width * sizeof(T) % 16 == 0;
    const unsigned row_pitch = 3 * p.columns;
    const T *q = (const T *)p.qkv + h.first_row * row_pitch + h.head * h.width, *k = q + p.columns, *v = k + p.columns;
    const T *dy = (const T *)p.dy + h.first_row * p.columns + h.head * h.width;
    const float *logsumexp = p.logsumexp + h.first_row * p.heads + h.head,
                *delta = p.delta + h.first_row * p.heads + h.head;
    /* only if KEYS: the first 2 BLOCK threads load one number each from `of_query` for each block of queries */
    const float *of_query = threadIdx.x < BLOCK ? logsumexp : delta;
    T *x1 = (T *)shared, *x2 = x1 + rows * pitch, *z = x2 + rows * pitch;
    /* only if KEYS: logsumexp and delta of the block's queries */
    float *of_block = (float *)(z + stages * 2 * block_size);
    const unsigned end = smaller(p.sequence, h.begin + rows);
    const unsigned first_block = KEYS ? h.begin / BLOCK : 0, blocks = tiles_of(KEYS ? p.sequence : end, BLOCK);
    const unsigned z_end = KEYS ? p.sequence : end;
    const unsigned lane = lane_of_warp(), own = threadIdx.x / 32 * 16, row = h.begin + own + lane / 4;
    const float scale = 1 / sqrtf((float)h.width);
    const unsigned x2_pitch = KEYS ? row_pitch : p.columns, z2_pitch = KEYS ? p.columns : row_pitch;

    const auto load = [&](unsigned block) {
        const unsigned stage = block & (stages - 1), first = block * BLOCK, valid = z_end - first;
        T *to = z + stage * (2 * block_size);
        if (block < blocks) {
            attention_load<T, WIDTH>(to, BLOCK, (KEYS ? q : k) + (size_t)first * row_pitch, row_pitch, valid, h.width,
                                     aligned);
            attention_load<T, WIDTH>(to + block_size, BLOCK, (KEYS ? dy : v) + (size_t)first * z2_pitch, z2_pitch,
                                     valid, h.width, aligned);
            if (KEYS && threadIdx.x < 2 * BLOCK) {
                const unsigned query = threadIdx.x % BLOCK;
                of_block[stage * 2 * BLOCK + threadIdx.x] =
                    query < valid ? of_query[(size_t)(first + query) * p.heads] : 0;
            }
        }
        copy_async_commit();
    };
    attention_load<T, WIDTH>(x1, rows, (KEYS ? k : q) + (size_t)h.begin * row_pitch, row_pitch, end - h.begin, h.width,
                             aligned);
    attention_load<T, WIDTH>(x2, rows, (KEYS ? v : dy) + (size_t)h.begin * x2_pitch, x2_pitch, end - h.begin, h.width,
                             aligned);
    float of_row[2][2] = {}; /* only if !KEYS: logsumexp and delta of this thread's two rows */
    if (!KEYS)
        UNROLL for (unsigned half = 0; half < 2; half++) if (row + half * 8 < end)
        {
            of_row[half][0] = logsumexp[(size_t)(row + half * 8) * p.heads];
            of_row[half][1] = delta[(size_t)(row + half * 8) * p.heads];
        }
    load(first_block);
    float sum1[WIDTH / 8][4] = {}, sum2[KEYS ? WIDTH / 8 : 1][4] = {};
    for (unsigned block = first_block; block < blocks; block++) {
        const T *z1 = z + (block & (stages - 1)) * (2 * block_size), *z2 = z1 + block_size;
        const float *exponents = of_block + (block & (stages - 1)) * (2 * BLOCK), *means = exponents + BLOCK;
        if (stages > 1)
            load(block + 1);
        else
            copy_async_commit(); /* of nothing */
        copy_async_wait<1>();
        tile_barrier();
        const unsigned first = block * BLOCK;
        /* false: this warp has no rows, or no query sees a key here, so it skips the block. If KEYS, the warp's 16
           rows are keys and the block's rows are queries; otherwise the other way round. */
        if ((rows == ATTENTION_TILE || own < rows) &&
            (KEYS ? first + BLOCK > h.begin + own : first <= h.begin + own + 15)) {
            float s[BLOCKS][4], ds[BLOCKS][4];
            attention_scores<WIDTH, BLOCKS>(s, x1 + own * pitch, z1);
            UNROLL for (unsigned j = 0; j < BLOCKS; j++) UNROLL for (unsigned i = 0; i < 4; i++)
            {
                const unsigned mine = row + i / 2 * 8, place = j * 8 + lane % 4 * 2 + i % 2, other = first + place;
                const unsigned query = KEYS ? other : mine, key = KEYS ? mine : other;
                const float exponent = KEYS ? exponents[place] : of_row[i / 2][0];
                const bool seen = key <= query && query < z_end;
                s[j][i] = seen ? exp2f(s[j][i] * (scale * ATTENTION_LOG2_E) - exponent) : 0;
            }
            if constexpr (KEYS)
                attention_mix<WIDTH, BLOCKS>(sum2, s, z2);
            attention_scores<WIDTH, BLOCKS>(ds, x2 + own * pitch, z2);
            UNROLL for (unsigned j = 0; j < BLOCKS; j++) UNROLL for (unsigned i = 0; i < 4; i++) ds[j][i] =
                s[j][i] * (ds[j][i] - (KEYS ? means[j * 8 + lane % 4 * 2 + i % 2] : of_row[i / 2][1]));
            attention_mix<WIDTH, BLOCKS>(sum1, ds, z1);
        }
        tile_barrier();
        if (stages == 1)
            load(block + 1);
    }
    /* the head is computed again here, so that it takes no registers during the loop */
    const AttentionHead again = attention_head(p, forget(tile), KEYS);
    T *dq = (T *)p.dqkv + again.first_row * row_pitch + again.head * again.width;
    const unsigned last = smaller(p.sequence, again.begin + attention_rows(p));
    const unsigned thread = forget(threadIdx.x), store_row = again.begin + thread / 32 * 16 + thread % 32 / 4;
    const float again_scale = 1 / sqrtf((float)again.width), scales[2] = {again_scale, again_scale}, ones[2] = {1, 1};
    attention_store<T, WIDTH>(KEYS ? dq + p.columns : dq, row_pitch, sum1, scales, store_row, last, again.width);
    if constexpr (KEYS)
        attention_store<T, WIDTH>(dq + 2 * p.columns, row_pitch, sum2, ones, store_row, last, again.width);
    copy_async_wait<0>();
    tile_barrier();
}

template <typename T> DEVICE void attention_forward_work(const Attention &p, unsigned tile, char *shared)
{
    const unsigned width = p.columns / p.heads;
    if (width <= 64)
        attention_forward_tile<T, 64>(p, tile, shared);
    else
        attention_forward_tile<T, 128>(p, tile, shared);
}

template <typename T, int WIDTH> DEVICE void attention_backward_half(const Attention &p, unsigned tile, char *shared)
{
    const unsigned keys = attention_blocks(&p, attention_rows(p));
    if (tile < keys)
        attention_backward_tile<T, WIDTH, true>(p, tile, shared);
    else
        attention_backward_tile<T, WIDTH, false>(p, tile - keys, shared);
}

template <typename T> DEVICE void attention_backward_work(const Attention &p, unsigned tile, char *shared)
{
    const unsigned width = p.columns / p.heads;
    if (width <= 64)
        attention_backward_half<T, 64>(p, tile, shared);
    else
        attention_backward_half<T, 128>(p, tile, shared);
}

#endif
