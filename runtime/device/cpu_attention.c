/* Causal attention on the CPU. A head's rows are processed in blocks. The rows of a block see only keys 0 .. k - 1,
   where k - 1 is the last row of the block. The probabilities of a block of n rows are a dense [n, k] matrix in the
   context; scores of later keys are neither computed nor kept. Heads are first gathered into dense matrices, which
   oneDNN multiplies up to three times as fast. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 128 };

typedef struct Block {
    size_t first, rows, keys; /* keys = first + rows */
    /* offset of the block's probabilities in what the forward keeps of its head for the backward (o->context), in
       floats */
    size_t place;
} Block;

static Block block_at(size_t sequence, size_t index)
{
    const size_t first = index * BLOCK_ROWS, left = sequence - first, rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;
    return (Block){.first = first,
                   .rows = rows,
                   .keys = first + rows,
                   .place = BLOCK_ROWS * (size_t)BLOCK_ROWS * (index * (index + 1) / 2)};
}

static size_t block_count(size_t sequence) { return (sequence + BLOCK_ROWS - 1) / BLOCK_ROWS; }

static size_t head_context(size_t sequence)
{
    const Block last = block_at(sequence, block_count(sequence) - 1);
    return last.place + last.rows * last.keys;
}

AttentionPlan cpu_attention_plan(const KernelShape *shape)
{
    const size_t width = shape->columns / shape->heads,
                 block = shape->sequence < BLOCK_ROWS ? shape->sequence : BLOCK_ROWS;
    return (AttentionPlan){
        .blocks = block_count(shape->sequence),
        .context = shape->rows / shape->sequence * shape->heads * head_context(shape->sequence),
        /* The backward needs the most scratch: for one head the query, key and value, their gradients, and dy; for one
           block of rows the gradients of the scores, and one mean per row. */
        .scratch = 7 * shape->sequence * width + block * shape->sequence + block,
    };
}

Status cpu_attention_primitives(CpuDevice *cpu, const KernelShape *shape, Primitive *primitives, Error *error)
{
    for (size_t i = 0; i < block_count(shape->sequence); i++) {
        const Block block = block_at(shape->sequence, i);
        TRY(cpu_softmax_primitive(cpu, block.rows, block.keys, &primitives[i], error));
    }
    return STATUS_OK;
}

static void gather(size_t rows, size_t width, const float *source, size_t pitch, float *dense)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(dense + i * width, source + i * pitch, width * sizeof *dense);
}

static void scatter(size_t rows, size_t width, const float *dense, float *destination, size_t pitch)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(destination + i * pitch, dense + i * width, width * sizeof *dense);
}

CPU(attention_forward)
{
    CpuDevice *cpu = (CpuDevice *)device;
    const KernelShape *shape = &op->kernel->shape;
    const size_t sequence = shape->sequence, columns = shape->columns, width = columns / shape->heads;
    const float scale = (float)(1 / sqrt((double)width));
    float *q = cpu->scratch.memory, *k = q + sequence * width, *v = k + sequence * width, *out = v + sequence * width;
    float *probabilities = o->context;
    for (size_t which = 0; which < shape->rows / sequence * shape->heads; which++) {
        const size_t row = which / shape->heads * sequence, column = which % shape->heads * width;
        const float *in = (const float *)o->qkv + row * 3 * columns + column;
        gather(sequence, width, in, 3 * columns, q);
        gather(sequence, width, in + columns, 3 * columns, k);
        gather(sequence, width, in + 2 * columns, 3 * columns, v);
        for (size_t b = 0; b < block_count(sequence); b++) {
            const Block block = block_at(sequence, b);
            float *p = probabilities + block.place;
            TRY(cpu_product(
                cpu, &(Product){.transpose_b = true, .m = block.rows, .n = block.keys, .k = width, .alpha = scale},
                q + block.first * width, k, p, error));
            for (size_t i = 0; i < block.rows; i++)
                for (size_t j = block.first + i + 1; j < block.keys; j++)
                    p[i * block.keys + j] = -INFINITY;
            TRY(cpu_run(cpu, &((const CpuKernel *)op->kernel)->primitives[b], (const void *[]){p, p}, error));
            TRY(cpu_product(cpu, &(Product){.m = block.rows, .n = width, .k = block.keys, .alpha = 1}, p, v,
                            out + block.first * width, error));
        }
        scatter(sequence, width, out, (float *)o->y + row * columns + column, columns);
        probabilities += head_context(sequence);
    }
    return STATUS_OK;
}

static float inner_product(size_t count, const float *a, const float *b)
{
    enum { LANES = 8 };
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += a[i + l] * b[i + l];
    for (; i < count; i++)
        lanes[0] += a[i] * b[i];
    float sum = 0;
    for (size_t l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

/* Computes ds = p (dp - mean) scale. Before the call ds holds dp. mean[i] is the sum of p dp over row i; it equals the
   inner product of rows i of dy and y, because y = p v (Dao et al., FlashAttention, 2022). */
static void softmax_backward(Block block, float scale, const float *p, const float *mean, float *ds)
{
    for (size_t i = 0; i < block.rows; i++, p += block.keys, ds += block.keys)
        for (size_t j = 0; j < block.keys; j++)
            ds[j] = p[j] * (ds[j] - mean[i]) * scale;
}

CPU(attention_backward)
{
    CpuDevice *cpu = (CpuDevice *)device;
    const KernelShape *shape = &op->kernel->shape;
    const size_t sequence = shape->sequence, columns = shape->columns, width = columns / shape->heads;
    const size_t size = sequence * width, blocks = block_count(sequence);
    const float scale = (float)(1 / sqrt((double)width));
    float *q = cpu->scratch.memory, *k = q + size, *v = k + size, *d = v + size, *dq = d + size, *dk = dq + size,
          *dv = dk + size, *mean = dv + size, *ds = mean + (sequence < BLOCK_ROWS ? sequence : BLOCK_ROWS);
    const float *probabilities = o->context;
    for (size_t which = 0; which < shape->rows / sequence * shape->heads; which++) {
        const size_t row = which / shape->heads * sequence, column = which % shape->heads * width;
        const float *in = (const float *)o->qkv + row * 3 * columns + column;
        const float *mixed = (const float *)o->y + row * columns + column;
        gather(sequence, width, in, 3 * columns, q);
        gather(sequence, width, in + columns, 3 * columns, k);
        gather(sequence, width, in + 2 * columns, 3 * columns, v);
        gather(sequence, width, (const float *)o->dy + row * columns + column, columns, d);
        for (size_t b = blocks; b-- > 0;) {
            const Block block = block_at(sequence, b);
            const float *p = probabilities + block.place, *d_block = d + block.first * width;
            /* The loop begins with the last block, whose rows see every key. So this block overwrites dk and dv, and
               the other blocks add to them. */
            const float beta = b == blocks - 1 ? 0 : 1;
            for (size_t i = 0; i < block.rows; i++)
                mean[i] = inner_product(width, d_block + i * width, mixed + (block.first + i) * columns);
            TRY(cpu_product(cpu,
                            &(Product){.transpose_b = true, .m = block.rows, .n = block.keys, .k = width, .alpha = 1},
                            d_block, v, ds, error));
            softmax_backward(block, scale, p, mean, ds);
            TRY(cpu_product(cpu, &(Product){.m = block.rows, .n = width, .k = block.keys, .alpha = 1}, ds, k,
                            dq + block.first * width, error));
            const Product to_keys = {
                .transpose_a = true, .m = block.keys, .n = width, .k = block.rows, .alpha = 1, .beta = beta};
            TRY(cpu_product(cpu, &to_keys, p, d_block, dv, error));
            TRY(cpu_product(cpu, &to_keys, ds, q + block.first * width, dk, error));
        }
        float *out = (float *)o->dqkv + row * 3 * columns + column;
        scatter(sequence, width, dq, out, 3 * columns);
        scatter(sequence, width, dk, out + columns, 3 * columns);
        scatter(sequence, width, dv, out + 2 * columns, 3 * columns);
        probabilities += head_context(sequence);
    }
    return STATUS_OK;
}
