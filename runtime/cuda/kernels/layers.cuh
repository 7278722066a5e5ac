#ifndef CUDA_KERNELS_LAYERS_CUH
#define CUDA_KERNELS_LAYERS_CUH

/* The operations between the products: layer norm, GELU, embedding. All are bound by memory, so each thread handles
   eight elements at once; in the backward of the embedding it handles one column. */

#include "elements.cuh"

/* ---- layer norm: one warp per row; the caches hold the row between its loops ---- */

/* Calls visit(column, v) for each group v of eight elements of a row that is this lane's; `column` is the column of the
   first one. Elements of v beyond the end of the row are zero; visit must ignore them. */
template <typename T, typename Visit> DEVICE void norm_row(const T *row, unsigned columns, Visit visit)
{
    constexpr unsigned GROUPS = 4, STEP = 32 * 8;
    by_alignment(columns, [&](bool aligned) {
        for (unsigned column = lane_of_warp() * 8; column < columns; column += GROUPS * STEP) {
            float v[GROUPS][8];
            UNROLL for (unsigned g = 0; g < GROUPS; g++) load8(row, column + g * STEP, columns, aligned, v[g]);
            UNROLL for (unsigned g = 0; g < GROUPS; g++) if (column + g * STEP < columns)
                visit(column + g * STEP, v[g]);
        }
    });
}

DEVICE unsigned norm_row_of(unsigned tile) { return tile * NORM_TILE_ROWS + threadIdx.x / 32; }

template <typename T> DEVICE void norm_forward_tile(const Norm &p, unsigned tile)
{
    const unsigned number = norm_row_of(tile), columns = p.columns;
    if (number >= p.rows)
        return;
    const bool aligned = rows_are_aligned(columns);
    const T *x = (const T *)p.x + (size_t)number * columns;
    float mean = 0, variance = 0;
    norm_row(x, columns, [&](unsigned, const float(&v)[8]) { UNROLL for (int i = 0; i < 8; i++) mean += v[i]; });
    mean = warp_sum(mean) / (float)columns;
    norm_row(x, columns, [&](unsigned column, const float(&v)[8]) {
        UNROLL for (unsigned i = 0; i < 8; i++) variance += column + i < columns ? (v[i] - mean) * (v[i] - mean) : 0;
    });
    const float inverse = 1 / sqrtf(warp_sum(variance) / (float)columns + 1e-5f);
    norm_row(x, columns, [&](unsigned column, float(&v)[8]) {
        float gain[8], shift[8];
        load8((const T *)p.gain, column, columns, aligned, gain);
        load8((const T *)p.shift, column, columns, aligned, shift);
        UNROLL for (int i = 0; i < 8; i++) v[i] = (v[i] - mean) * inverse * gain[i] + shift[i];
        store8((T *)p.y + (size_t)number * columns, column, columns, aligned, v);
    });
    if (lane_of_warp() == 0) {
        p.statistics[2 * (size_t)number] = mean;
        p.statistics[2 * (size_t)number + 1] = inverse;
    }
}

template <typename T> DEVICE void norm_backward_input_tile(const Norm &p, unsigned tile)
{
    const unsigned number = norm_row_of(tile), columns = p.columns;
    if (number >= p.rows)
        return;
    const bool aligned = rows_are_aligned(columns);
    const size_t at = (size_t)number * columns;
    const T *x = (const T *)p.x + at;
    const float mean = p.statistics[2 * (size_t)number], inverse = p.statistics[2 * (size_t)number + 1];
    float mean_d = 0, mean_dn = 0; /* the means of d = dy * gain and of d * normalised x over the row */
    const auto read = [&](unsigned column, float(&d)[8], float(&normalised)[8]) {
        float gain[8];
        load8((const T *)p.dy + at, column, columns, aligned, d);
        load8((const T *)p.gain, column, columns, aligned, gain);
        UNROLL for (int i = 0; i < 8; i++)
        {
            d[i] *= gain[i];
            normalised[i] = (normalised[i] - mean) * inverse;
        }
    };
    norm_row(x, columns, [&](unsigned column, float(&v)[8]) {
        float d[8];
        read(column, d, v);
        UNROLL for (int i = 0; i < 8; i++)
        {
            mean_d += d[i];
            mean_dn += d[i] * v[i];
        }
    });
    mean_d = warp_sum(mean_d) / (float)columns;
    mean_dn = warp_sum(mean_dn) / (float)columns;
    norm_row(x, columns, [&](unsigned column, float(&v)[8]) {
        float d[8], residual[8] = {};
        read(column, d, v);
        if (p.residual)
            load8((const T *)p.residual + at, column, columns, aligned, residual);
        UNROLL for (int i = 0; i < 8; i++) v[i] = inverse * (d[i] - mean_d - v[i] * mean_dn) + residual[i];
        store8((T *)p.dx + at, column, columns, aligned, v);
    });
}

/* A tile sums 32 columns over all rows. Four threads take a row, so 64 rows are read at a time, and each column has 64
   partial sums, which are then added in a fixed order. */
template <typename T> DEVICE void norm_backward_weight_tile(const Norm &p, unsigned tile, char *shared)
{
    float *partial_gain = (float *)shared, *partial_shift = partial_gain + TILE_THREADS / 4 * (NORM_TILE_COLUMNS + 1);
    const unsigned columns = p.columns, part = threadIdx.x % 4, lane = threadIdx.x / 4;
    const unsigned column = tile * NORM_TILE_COLUMNS + part * 8;
    constexpr unsigned GROUPS = 4, STEP = TILE_THREADS / 4;
    float gain[8] = {}, shift[8] = {};
    by_alignment(columns, [&](bool aligned) {
        for (unsigned first = lane; first < p.rows; first += GROUPS * STEP) {
            float x[GROUPS][8], d[GROUPS][8], mean[GROUPS], inverse[GROUPS];
            UNROLL for (unsigned g = 0; g < GROUPS; g++)
            {
                const size_t row = first + g * STEP;
                const unsigned end = row < p.rows ? columns : 0; /* beyond the last row there are zeros */
                load8((const T *)p.x + row * columns, column, end, aligned, x[g]);
                load8((const T *)p.dy + row * columns, column, end, aligned, d[g]);
                mean[g] = end ? p.statistics[2 * row] : 0;
                inverse[g] = end ? p.statistics[2 * row + 1] : 0;
            }
            UNROLL for (unsigned g = 0; g < GROUPS; g++) UNROLL for (int i = 0; i < 8; i++)
            {
                gain[i] += d[g][i] * (x[g][i] - mean[g]) * inverse[g];
                shift[i] += d[g][i];
            }
        }
    });
    UNROLL for (unsigned i = 0; i < 8; i++)
    {
        partial_gain[lane * (NORM_TILE_COLUMNS + 1) + part * 8 + i] = gain[i];
        partial_shift[lane * (NORM_TILE_COLUMNS + 1) + part * 8 + i] = shift[i];
    }
    tile_barrier();
    const unsigned own = threadIdx.x % NORM_TILE_COLUMNS, mine = tile * NORM_TILE_COLUMNS + own;
    if (threadIdx.x < 2 * NORM_TILE_COLUMNS && mine < columns) {
        const bool is_gain = threadIdx.x < NORM_TILE_COLUMNS;
        const float *partial = is_gain ? partial_gain : partial_shift;
        float whole = 0;
        for (unsigned i = 0; i < TILE_THREADS / 4; i++)
            whole += partial[i * (NORM_TILE_COLUMNS + 1) + own];
        (is_gain ? p.dgain : p.dshift)[mine] += whole;
    }
    tile_barrier();
}

/* ---- element by element ---- */

/* Stores f(v, w) of the elements v of `from` and w of `other`, both of type From; NULL: zeros. A thread reads all that
   it needs before it stores: the compiler cannot know whether both are the same memory. WHOLE: no element of the tile
   lies beyond the end. */
template <bool WHOLE, typename From, typename To, typename F>
DEVICE void elementwise_groups(const Elementwise &p, const void *from, const void *other, size_t first, F f)
{
    constexpr unsigned GROUPS = ELEMENTWISE_TILE / (TILE_THREADS * 8);
    float v[GROUPS][8] = {}, w[GROUPS][8] = {};
    UNROLL for (unsigned g = 0; g < GROUPS; g++)
    {
        const size_t i = first + g * TILE_THREADS * 8, count = WHOLE ? i + 8 : p.count;
        if (from)
            load8((const From *)from, i, count, i + 8 <= count, v[g]);
        if (other)
            load8((const From *)other, i, count, i + 8 <= count, w[g]);
    }
    UNROLL for (unsigned g = 0; g < GROUPS; g++)
    {
        const size_t i = first + g * TILE_THREADS * 8, count = WHOLE ? i + 8 : p.count;
        UNROLL for (int e = 0; e < 8; e++) v[g][e] = f(v[g][e], w[g][e]);
        store8((To *)p.to, i, count, i + 8 <= count, v[g]);
    }
}

template <typename From, typename To, typename F>
DEVICE void elementwise_tile(const Elementwise &p, const void *from, const void *other, unsigned tile, F f)
{
    const size_t begin = (size_t)tile * ELEMENTWISE_TILE, first = begin + threadIdx.x * 8;
    if (begin + ELEMENTWISE_TILE <= p.count)
        elementwise_groups<true, From, To>(p, from, other, first, f);
    else
        elementwise_groups<false, From, To>(p, from, other, first, f);
}

template <typename From, typename To> DEVICE void convert_tile(const Elementwise &p, unsigned tile)
{
    elementwise_tile<From, To>(p, p.from, nullptr, tile, [](float v, float) { return v; });
}

template <typename T> DEVICE void gelu_forward_tile(const Elementwise &p, unsigned tile)
{
    elementwise_tile<T, T>(p, p.from, nullptr, tile, [](float v, float) { return gelu<T>(v); });
}

template <typename T> DEVICE void gelu_backward_tile(const Elementwise &p, unsigned tile)
{
    elementwise_tile<T, T>(p, p.from, p.other, tile, [](float v, float d) { return d * gelu_derivative<T>(v); });
}

template <typename T> DEVICE void accumulate_tile(const Elementwise &p, unsigned tile)
{
    elementwise_tile<T, T>(p, p.from, p.to, tile, [](float v, float sum) { return sum + v; });
}

template <typename T> DEVICE void fill_tile(const Elementwise &p, unsigned tile)
{
    const float value = p.value;
    elementwise_tile<T, T>(p, nullptr, nullptr, tile, [=](float, float) { return value; });
}

/* ---- embedding ---- */

template <typename T> DEVICE void embedding_forward_tile(const Embedding &p, unsigned tile)
{
    const size_t strips = tiles_of(p.columns, 8), begin = (size_t)tile * (ELEMENTWISE_TILE / 8);
    const bool aligned = rows_are_aligned(p.columns);
    for (size_t i = begin + threadIdx.x; i < begin + ELEMENTWISE_TILE / 8 && i < strips * p.rows; i += TILE_THREADS) {
        const size_t row = i / strips, column = i % strips * 8;
        float v[8], position[8];
        load8((const T *)p.token_table + (size_t)p.tokens[row] * p.columns, column, p.columns, aligned, v);
        load8((const T *)p.position_table + row % p.sequence * p.columns, column, p.columns, aligned, position);
        UNROLL for (int e = 0; e < 8; e++) v[e] += position[e];
        store8((T *)p.y + row * p.columns, column, p.columns, aligned, v);
    }
}

/* Adds up the gradient of one row of the token table. `row` is a row of dy. If it is the first row with its token, its
   tile adds up dy of all rows with this token, in order; otherwise the tile does nothing. So no two tiles add to the
   same memory. The rows are searched 256 at a time; those with the token are listed in shared memory. */
template <typename T> DEVICE void embedding_token_tile(const Embedding &p, unsigned row, unsigned column, char *shared)
{
    unsigned *matches = (unsigned *)shared, *counts = matches + TILE_THREADS;
    const int token = p.tokens[row];
    const unsigned warp = threadIdx.x / 32, lane = lane_of_warp();
    float sum = 0;
    for (unsigned first = 0; first < p.rows; first += TILE_THREADS) {
        const unsigned other = first + threadIdx.x;
        const bool match = other < p.rows && p.tokens[other] == token;
        const unsigned ballot = __ballot_sync(0xffffffffu, match);
        if (lane == 0)
            counts[warp] = (unsigned)__popc(ballot);
        tile_barrier();
        unsigned before = 0, count = 0;
        for (unsigned i = 0; i < TILE_THREADS / 32; i++) {
            before += i < warp ? counts[i] : 0;
            count += counts[i];
        }
        if (match)
            matches[before + (unsigned)__popc(ballot & ((1u << lane) - 1))] = other;
        tile_barrier();
        if (count && matches[0] < row)
            /* an earlier row has the same token, and its tile does the work; all threads return here together */
            return;
        UNROLL4 for (unsigned i = 0; i < count; i++) sum +=
            column < p.columns ? to_float(((const T *)p.dy)[(size_t)matches[i] * p.columns + column]) : 0;
        tile_barrier();
    }
    if (column < p.columns)
        p.dtoken_table[(size_t)token * p.columns + column] += sum;
}

template <typename T> DEVICE void embedding_backward_tile(const Embedding &p, unsigned tile, char *shared)
{
    const unsigned strips = tiles_of(p.columns, EMBEDDING_TILE_COLUMNS), place = tile / strips;
    const unsigned column = tile % strips * EMBEDDING_TILE_COLUMNS + threadIdx.x;
    if (place < p.rows) {
        embedding_token_tile<T>(p, place, column, shared);
        tile_barrier();
    } else if (column < p.columns) {
        const unsigned position = place - p.rows;
        float sum = 0;
        for (unsigned row = position; row < p.rows; row += p.sequence)
            sum += to_float(((const T *)p.dy)[(size_t)row * p.columns + column]);
        p.dposition_table[(size_t)position * p.columns + column] += sum;
    }
}

#endif
