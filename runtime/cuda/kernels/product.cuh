#ifndef CUDA_KERNELS_PRODUCT_CUH
#define CUDA_KERNELS_PRODUCT_CUH

/* The matrix products of a linear layer, in tiles of 128 x 128: bfloat16 by mma.sync with a pipeline of asynchronous
   copies, float by plain multiply-adds. There are three layouts: the forward, the gradient of the input, and the
   gradient of the weight. They differ in which index of an operand is contiguous, and in what is done with a
   finished tile. */

#include "elements.cuh"

template <ProductLayout LAYOUT> struct ProductOperands {
    static constexpr bool a_by_k = LAYOUT != PRODUCT_WEIGHT, b_by_k = LAYOUT == PRODUCT_INPUT; /* k is contiguous */
};

/* The element type of the result c, and of the matrix that it is combined with (residual, gelu_input or c itself). */
template <typename T, ProductLayout LAYOUT> struct ProductResult {
    using Type = T;
};
template <typename T> struct ProductResult<T, PRODUCT_WEIGHT> {
    using Type = float;
};

/* Finishes and stores ROWS groups of eight elements of the result, `stride` rows apart. sums(i, v) stores the sums of
   the i-th group in v. All groups of the matrix that is added or multiplied (residual, gelu_input or c) are read before
   the first group is stored: the compiler cannot know whether both matrices are the same memory. */
template <typename T, ProductLayout LAYOUT, int ROWS, typename Sums>
DEVICE void product_finish(const Product &p, unsigned first_row, unsigned stride, unsigned column, bool aligned,
                           Sums sums)
{
    using Result = typename ProductResult<T, LAYOUT>::Type;
    const Result *others = (const Result *)(LAYOUT == PRODUCT_FORWARD ? p.residual
                                            : LAYOUT == PRODUCT_INPUT ? p.gelu_input
                                                                      : p.c);
    float other[ROWS][8] = {}, bias[8] = {};
    if (others)
        UNROLL for (unsigned i = 0; i < ROWS; i++) if (first_row + i * stride < p.m)
            load8(others + (size_t)(first_row + i * stride) * p.n, column, p.n, aligned, other[i]);
    if (LAYOUT == PRODUCT_FORWARD && p.bias)
        load8((const T *)p.bias, column, p.n, aligned, bias);
    UNROLL for (unsigned i = 0; i < ROWS; i++)
    {
        const size_t row = first_row + i * stride, at = row * p.n;
        float v[8];
        if (row >= p.m)
            break;
        sums(i, v);
        UNROLL for (int e = 0; e < 8; e++) if (LAYOUT != PRODUCT_INPUT) v[e] = v[e] + bias[e] + other[i][e];
        else if (others) v[e] *= gelu_derivative<T>(other[i][e]);
        store8((Result *)p.c + at, column, p.n, aligned, v);
        if (LAYOUT == PRODUCT_FORWARD && p.gelu) {
            UNROLL for (int e = 0; e < 8; e++) v[e] = gelu<T>(to_float(Elements<T>::of(v[e])));
            store8((T *)p.gelu + at, column, p.n, aligned, v);
        }
    }
}

/* The address of element (row, column) of float[][PITCH] in shared memory. Threads store the sums of their fragments
   there; then each thread reads eight elements of a row. Within a row, the groups of eight columns are permuted to
   avoid bank conflicts. */
template <unsigned PITCH> DEVICE float *product_sum_at(float *sums, unsigned row, unsigned column)
{
    return sums + row * PITCH + (column ^ (row % 8 * 8));
}

template <typename T, ProductLayout LAYOUT>
DEVICE void product_finish_tile(const Product &p, ProductTile tile, float *sums)
{
    constexpr unsigned batch = 4, stride = TILE_THREADS / 16;
    const unsigned column = threadIdx.x % 16 * 8;
    if (tile.column + column < p.n)
        ROLL for (unsigned row = threadIdx.x / 16; row < PRODUCT_TILE && tile.row + row < p.m; row += batch * stride)
            product_finish<T, LAYOUT, batch>(
                p, tile.row + row, stride, tile.column + column, rows_are_aligned(p.n), [&](unsigned i, float(&v)[8]) {
                    Elements<float>::load8(product_sum_at<PRODUCT_TILE>(sums, row + i * stride, column), v);
                });
}

/* ---- bfloat16 ---- */

enum { SLAB = 32, SLAB_BYTES = PRODUCT_TILE * SLAB * 2, SLAB_STAGES = 4 }; /* a slab of an operand: 128 x 32 elements */
static_assert(SLAB_STAGES * 2 * SLAB_BYTES <= PRODUCT_SHARED && PRODUCT_TILE * PRODUCT_TILE * 4 <= PRODUCT_SHARED,
              "a tile's stages and its sums fit in shared memory");

/* The offset of a 16-byte chunk in an operand's slab in shared memory. The chunks of a row are permuted so that the
   eight rows that ldmatrix reads at once lie in different banks. If k is the contiguous index, a slab has 128 rows of 4
   chunks; otherwise 32 rows, one for each k, of 16 chunks. */
template <bool BY_K> DEVICE unsigned slab_chunk(unsigned row, unsigned chunk)
{
    return BY_K ? (row * 4 + (chunk ^ (row / 2 % 4))) * 16 : (row * 16 + (chunk ^ (row % 8))) * 16;
}

template <bool BY_K>
DEVICE void slab_load(char *slab, const Bf16 *operand, unsigned first, unsigned extent, unsigned first_k, unsigned k)
{
    const unsigned length = BY_K ? k : extent, chunks = BY_K ? 4 : 16;
    const unsigned first_row = BY_K ? first : first_k, first_column = BY_K ? first_k : first, rows = BY_K ? extent : k;
    UNROLL for (unsigned i = 0; i < PRODUCT_TILE * SLAB / 8 / TILE_THREADS; i++)
    {
        const unsigned at = threadIdx.x + i * TILE_THREADS, row = at / chunks, chunk = at % chunks;
        const unsigned column = first_column + chunk * 8;
        char *to = slab + slab_chunk<BY_K>(row, chunk);
        const bool inside = first_row + row < rows && column < length;
        const Bf16 *from = operand + (inside ? (size_t)(first_row + row) * length : 0);
        if (rows_are_aligned(length)) {
            copy_async(to, inside ? from + column : operand, inside ? 16 : 0);
        } else {
            unsigned short bits[8];
            UNROLL for (unsigned e = 0; e < 8; e++) bits[e] =
                inside && column + e < length ? from[column + e].bits : (unsigned short)0;
            *(uint4 *)to = make_uint4(bits[0] | (unsigned)bits[1] << 16, bits[2] | (unsigned)bits[3] << 16,
                                      bits[4] | (unsigned)bits[5] << 16, bits[6] | (unsigned)bits[7] << 16);
        }
    }
}

/* Loads the 16 x 16 elements at (row, k) of an operand as fragments of an mma. AS_B false: r has the four registers of
   `a`. AS_B true: r[0] and r[1] are `b` for rows row .. row + 7 of the operand (columns of the result), r[2] and r[3]
   for the next eight. */
template <bool BY_K, bool AS_B> DEVICE void slab_fragment(unsigned (&r)[4], const char *slab, unsigned row, unsigned k)
{
    const unsigned lane = lane_of_warp(), inner = lane % 8, first = lane / 8 % 2, second = lane / 16;
    const unsigned row_half = AS_B ? second : first, k_half = AS_B ? first : second;
    if (BY_K)
        load_matrices(r, slab + slab_chunk<true>(row + row_half * 8 + inner, k / 8 + k_half));
    else
        load_matrices_transposed(r, slab + slab_chunk<false>(k + k_half * 8 + inner, row / 8 + row_half));
}

template <ProductLayout LAYOUT>
DEVICE void product_tile_of(const Product &p, const Bf16 *, unsigned number, char *shared)
{
    using Layout = ProductOperands<LAYOUT>;
    const ProductTile tile = product_tile(p.m, p.n, PRODUCT_TILE, PRODUCT_TILE, PRODUCT_BAND, number);
    const unsigned slabs = tiles_of(p.k, SLAB), warp = threadIdx.x / 32, warp_row = warp % 2 * 64,
                   warp_column = warp / 2 * 32;
    float sum[4][4][4] = {};

    const auto load = [&](unsigned slab) {
        char *stage = shared + slab % SLAB_STAGES * (2 * SLAB_BYTES);
        if (slab < slabs) {
            slab_load<Layout::a_by_k>(stage, (const Bf16 *)p.a, tile.row, p.m, slab * SLAB, p.k);
            slab_load<Layout::b_by_k>(stage + SLAB_BYTES, (const Bf16 *)p.b, tile.column, p.n, slab * SLAB, p.k);
        }
        copy_async_commit();
    };
    for (unsigned slab = 0; slab < SLAB_STAGES - 1; slab++)
        load(slab);
    for (unsigned slab = 0; slab < slabs; slab++) {
        copy_async_wait<SLAB_STAGES - 2>();
        tile_barrier();
        load(slab + SLAB_STAGES - 1);
        const char *a_slab = shared + slab % SLAB_STAGES * (2 * SLAB_BYTES), *b_slab = a_slab + SLAB_BYTES;
        UNROLL for (unsigned k = 0; k < SLAB; k += 16)
        {
            unsigned a[4][4], b[2][4];
            UNROLL for (unsigned i = 0; i < 4; i++)
                slab_fragment<Layout::a_by_k, false>(a[i], a_slab, warp_row + i * 16, k);
            UNROLL for (unsigned j = 0; j < 2; j++)
                slab_fragment<Layout::b_by_k, true>(b[j], b_slab, warp_column + j * 16, k);
            UNROLL for (unsigned i = 0; i < 4; i++) UNROLL for (unsigned j = 0; j < 4; j++)
                multiply_fragments(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    copy_async_wait<0>();
    tile_barrier();
    float *sums = (float *)shared;
    const unsigned lane = lane_of_warp();
    UNROLL for (unsigned i = 0; i < 4; i++) UNROLL for (unsigned j = 0; j < 4; j++)
        UNROLL for (unsigned half = 0; half < 2; half++)
    {
        const unsigned row = warp_row + i * 16 + half * 8 + lane / 4, column = warp_column + j * 8 + lane % 4 * 2;
        *(float2 *)product_sum_at<PRODUCT_TILE>(sums, row, column) =
            make_float2(sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
    }
    tile_barrier();
    product_finish_tile<Bf16, LAYOUT>(p, tile, sums);
    tile_barrier();
}

/* ---- float ---- */

enum { FLOAT_SLAB = 16, FLOAT_PITCH = PRODUCT_TILE + 4, FLOAT_SLAB_SIZE = FLOAT_SLAB * FLOAT_PITCH };

/* Reads eight elements of a slab of `operand` into this thread's registers. float_slab_write then stores them in shared
   memory as [k][row]. */
template <bool BY_K>
DEVICE void float_slab_read(float (&v)[8], const float *operand, unsigned first, unsigned extent, unsigned first_k,
                            unsigned k)
{
    const unsigned length = BY_K ? k : extent, rows = BY_K ? extent : k;
    const unsigned row = BY_K ? first + threadIdx.x / 2 : first_k + threadIdx.x / 16;
    const unsigned column = BY_K ? first_k + threadIdx.x % 2 * 8 : first + threadIdx.x % 16 * 8;
    load8(operand + (row < rows ? (size_t)row * length : 0), column, row < rows ? length : 0, rows_are_aligned(length),
          v);
}

template <bool BY_K> DEVICE void float_slab_write(float *slab, const float (&v)[8])
{
    if (BY_K)
        UNROLL for (unsigned i = 0; i < 8; i++) slab[(threadIdx.x % 2 * 8 + i) * FLOAT_PITCH + threadIdx.x / 2] = v[i];
    else
        Elements<float>::store8(slab + threadIdx.x / 16 * FLOAT_PITCH + threadIdx.x % 16 * 8, v);
}

template <ProductLayout LAYOUT>
DEVICE void product_tile_of(const Product &p, const float *, unsigned number, char *shared)
{
    using Layout = ProductOperands<LAYOUT>;
    const ProductTile tile = product_tile(p.m, p.n, PRODUCT_TILE, PRODUCT_TILE, PRODUCT_BAND, number);
    const unsigned slabs = tiles_of(p.k, FLOAT_SLAB), across = threadIdx.x % 16 * 4, down = threadIdx.x / 16 * 4;
    float sum[8][8] = {}, next_a[8], next_b[8];

    float_slab_read<Layout::a_by_k>(next_a, (const float *)p.a, tile.row, p.m, 0, p.k);
    float_slab_read<Layout::b_by_k>(next_b, (const float *)p.b, tile.column, p.n, 0, p.k);
    for (unsigned slab = 0; slab < slabs; slab++) {
        float *a_slab = (float *)shared + slab % 2 * (2 * FLOAT_SLAB_SIZE), *b_slab = a_slab + FLOAT_SLAB_SIZE;
        float_slab_write<Layout::a_by_k>(a_slab, next_a);
        float_slab_write<Layout::b_by_k>(b_slab, next_b);
        tile_barrier();
        float_slab_read<Layout::a_by_k>(next_a, (const float *)p.a, tile.row, p.m, (slab + 1) * FLOAT_SLAB, p.k);
        float_slab_read<Layout::b_by_k>(next_b, (const float *)p.b, tile.column, p.n, (slab + 1) * FLOAT_SLAB, p.k);
        UNROLL for (unsigned k = 0; k < FLOAT_SLAB; k++)
        {
            float a[8], b[8];
            const float4 a0 = *(const float4 *)(a_slab + k * FLOAT_PITCH + down);
            const float4 a1 = *(const float4 *)(a_slab + k * FLOAT_PITCH + 64 + down);
            const float4 b0 = *(const float4 *)(b_slab + k * FLOAT_PITCH + across);
            const float4 b1 = *(const float4 *)(b_slab + k * FLOAT_PITCH + 64 + across);
            a[0] = a0.x, a[1] = a0.y, a[2] = a0.z, a[3] = a0.w, a[4] = a1.x, a[5] = a1.y, a[6] = a1.z, a[7] = a1.w;
            b[0] = b0.x, b[1] = b0.y, b[2] = b0.z, b[3] = b0.w, b[4] = b1.x, b[5] = b1.y, b[6] = b1.z, b[7] = b1.w;
            UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 8; j++) sum[i][j] += a[i] * b[j];
        }
    }
    tile_barrier();
    float *sums = (float *)shared;
    UNROLL for (unsigned i = 0; i < 8; i++) UNROLL for (unsigned j = 0; j < 2; j++) *
        (float4 *)product_sum_at<PRODUCT_TILE>(sums, i / 4 * 64 + down + i % 4, j * 64 + across) =
        make_float4(sum[i][j * 4], sum[i][j * 4 + 1], sum[i][j * 4 + 2], sum[i][j * 4 + 3]);
    tile_barrier();
    product_finish_tile<float, LAYOUT>(p, tile, sums);
    tile_barrier();
}

/* ---- sums of columns ---- */

/* sum[c] += the sum of column c of matrix[rows, columns], for the 32 columns c of a strip. Four threads share a row,
   and 64 rows are added at a time. */
template <typename T>
DEVICE void column_sum_tile(const T *matrix, float *sum, unsigned rows, unsigned columns, unsigned strip, char *shared)
{
    constexpr unsigned GROUPS = 8, STEP = TILE_THREADS / 4;
    float *partial = (float *)shared, total[8] = {};
    const unsigned part = threadIdx.x % 4, lane = threadIdx.x / 4, column = strip * PRODUCT_SUM_COLUMNS + part * 8;
    by_alignment(columns, [&](bool aligned) {
        for (unsigned first = lane; first < rows; first += GROUPS * STEP) {
            float v[GROUPS][8];
            UNROLL for (unsigned g = 0; g < GROUPS; g++)
            {
                const size_t row = first + g * STEP;
                load8(matrix + row * columns, column, row < rows ? columns : 0, aligned, v[g]);
            }
            UNROLL for (unsigned g = 0; g < GROUPS; g++) UNROLL for (int i = 0; i < 8; i++) total[i] += v[g][i];
        }
    });
    UNROLL for (unsigned i = 0; i < 8; i++) partial[lane * (PRODUCT_SUM_COLUMNS + 1) + part * 8 + i] = total[i];
    tile_barrier();
    const unsigned mine = strip * PRODUCT_SUM_COLUMNS + threadIdx.x;
    if (threadIdx.x < PRODUCT_SUM_COLUMNS && mine < columns) {
        float whole = 0;
        for (unsigned i = 0; i < TILE_THREADS / 4; i++)
            whole += partial[i * (PRODUCT_SUM_COLUMNS + 1) + threadIdx.x];
        sum[mine] += whole;
    }
    tile_barrier();
}

template <typename T, ProductLayout LAYOUT> DEVICE void product_work(const Product &p, unsigned number, char *shared)
{
    const unsigned tiles = product_tiles(p.m, p.n);
    if (number < tiles)
        product_tile_of<LAYOUT>(p, (const T *)nullptr, number, shared);
    else if (LAYOUT == PRODUCT_WEIGHT)
        column_sum_tile((const T *)p.b, p.column_sums, p.k, p.n, number - tiles, shared);
}

#endif
