#ifndef CUDA_KERNELS_TRAINING_CUH
#define CUDA_KERNELS_TRAINING_CUH

/* Losses, sums in double, the optimizer and copies of bytes. */

#include "layers.cuh"

/* Each tile is a row of logits. A first loop over the row finds the largest logit and the sum of the exponentials; a
   second loop overwrites the logits with their gradient. */
template <typename T> DEVICE void cross_entropy_tile(const CrossEntropy &p, unsigned row, char *shared)
{
    double *scratch = (double *)shared;
    const unsigned columns = p.columns, target = (unsigned)p.targets[row];
    const bool aligned = rows_are_aligned(columns);
    T *logits = (T *)p.logits + (size_t)row * columns;
    float v[8], largest = -INFINITY, sum = 0;
    for (unsigned column = threadIdx.x * 8; column < columns; column += TILE_THREADS * 8) {
        load8((const T *)logits, column, columns, aligned, v);
        float now = largest;
        UNROLL for (unsigned i = 0; i < 8; i++) now = column + i < columns ? fmaxf(now, v[i]) : now;
        sum *= expf(largest - now);
        UNROLL for (unsigned i = 0; i < 8; i++) sum += column + i < columns ? expf(v[i] - now) : 0;
        largest = now;
    }
    float *maxima = (float *)shared, whole = largest;
    UNROLL for (int distance = 16; distance > 0; distance /= 2) whole =
        fmaxf(whole, __shfl_xor_sync(0xffffffffu, whole, distance));
    if (lane_of_warp() == 0)
        maxima[threadIdx.x / 32] = whole;
    tile_barrier();
    UNROLL for (int warp = 0; warp < TILE_THREADS / 32; warp++) whole = fmaxf(whole, maxima[warp]);
    const float of_target = to_float(logits[target]);
    sum = largest > -INFINITY ? sum * expf(largest - whole) : 0; /* a thread without elements adds nothing */
    const double total = tile_sum((double)sum, scratch);
    const float inverse = (float)(1 / total), scale = p.scale / (float)p.rows;
    if (threadIdx.x == 0)
        p.row_losses[row] = (double)whole - (double)of_target + log(total);
    for (unsigned column = threadIdx.x * 8; column < columns; column += TILE_THREADS * 8) {
        load8((const T *)logits, column, columns, aligned, v);
        UNROLL for (unsigned i = 0; i < 8; i++) v[i] =
            (expf(v[i] - whole) * inverse - (column + i == target ? 1.f : 0.f)) * scale;
        store8(logits, column, columns, aligned, v);
    }
    tile_barrier();
}

template <typename T> DEVICE void squared_error_tile(const SquaredError &p, unsigned tile, char *shared)
{
    const size_t begin = (size_t)tile * SUM_CHUNK;
    const float scale = 2 * p.scale / (float)p.count;
    double sum = 0;
    for (size_t i = begin + threadIdx.x * 8; i < begin + SUM_CHUNK && i < p.count; i += TILE_THREADS * 8) {
        float y[8], target[8];
        load8((const T *)p.y, i, p.count, i + 8 <= p.count, y);
        load8(p.targets, i, p.count, i + 8 <= p.count, target);
        UNROLL for (int e = 0; e < 8; e++)
        {
            y[e] -= target[e];
            sum += (double)y[e] * (double)y[e];
            y[e] *= scale;
        }
        store8((T *)p.dy, i, p.count, i + 8 <= p.count, y);
    }
    sum = tile_sum(sum, (double *)shared);
    if (threadIdx.x == 0)
        p.partial[tile] = sum;
    tile_barrier();
}

DEVICE void sum_of_squares_tile(const Sum &p, unsigned tile, char *shared)
{
    const size_t begin = (size_t)tile * SUM_CHUNK;
    double sum = 0;
    for (size_t i = begin + threadIdx.x * 8; i < begin + SUM_CHUNK && i < p.count; i += TILE_THREADS * 8) {
        float v[8];
        load8(p.values, i, p.count, i + 8 <= p.count, v);
        UNROLL for (int e = 0; e < 8; e++) sum += (double)v[e] * (double)v[e];
    }
    sum = tile_sum(sum, (double *)shared);
    if (threadIdx.x == 0)
        p.partial[tile] = sum;
    tile_barrier();
}

DEVICE void finish_sum_tile(const Sum &p, char *shared)
{
    double sum = 0;
    for (size_t i = threadIdx.x; i < p.count; i += TILE_THREADS)
        sum += p.partial[i];
    sum = tile_sum(sum, (double *)shared);
    if (threadIdx.x == 0)
        *p.result = sum * p.scale;
    tile_barrier();
}

DEVICE void adamw_tile(const AdamWStep &p, unsigned tile)
{
    const size_t begin = (size_t)tile * ELEMENTWISE_TILE;
    for (size_t i = begin + threadIdx.x * 8; i < begin + ELEMENTWISE_TILE && i < p.count; i += TILE_THREADS * 8) {
        const bool whole = i + 8 <= p.count;
        float parameter[8], gradient[8], moment1[8], moment2[8];
        load8((const float *)p.parameters, i, p.count, whole, parameter);
        load8((const float *)p.gradients, i, p.count, whole, gradient);
        load8((const float *)p.moment1, i, p.count, whole, moment1);
        load8((const float *)p.moment2, i, p.count, whole, moment2);
        UNROLL for (int e = 0; e < 8; e++)
        {
            const float g = gradient[e] * p.clip;
            moment1[e] = p.beta1 * moment1[e] + p.one_minus_beta1 * g;
            moment2[e] = p.beta2 * moment2[e] + p.one_minus_beta2 * g * g;
            const float deviation = sqrtf(moment2[e]) * p.inverse_root_correction;
            parameter[e] -= p.rate_corrected * moment1[e] / (deviation + p.epsilon) + p.rate * p.decay * parameter[e];
            gradient[e] = 0;
        }
        store8(p.parameters, i, p.count, whole, parameter);
        store8(p.gradients, i, p.count, whole, gradient);
        store8(p.moment1, i, p.count, whole, moment1);
        store8(p.moment2, i, p.count, whole, moment2);
        if (p.bf16_copy)
            store8((Bf16 *)p.bf16_copy, i, p.count, whole, parameter);
    }
}

DEVICE void copy_tile(const Copy &p, unsigned tile)
{
    const size_t begin = (size_t)tile * COPY_TILE;
    for (size_t i = begin + threadIdx.x * 16; i < begin + COPY_TILE && i < p.bytes; i += TILE_THREADS * 16)
        if (i + 16 <= p.bytes)
            *(uint4 *)((char *)p.to + i) = *(const uint4 *)((const char *)p.from + i);
        else
            for (size_t rest = i; rest < p.bytes; rest++)
                ((char *)p.to)[rest] = ((const char *)p.from)[rest];
}

#endif
