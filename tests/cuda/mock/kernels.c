/* The kernels of kernels.h on the CPU device; bfloat16 operands are converted to float. */

#include "tests/cuda/mock/mock.h"

#include "runtime/device/device.h"
#include "tests/device/run_op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Device *cpu;

static void must(Status status, const Error *error)
{
    if (status != STATUS_OK) {
        fprintf(stderr, "mock: %s\n", error->text);
        abort();
    }
}

#define MUST(call)                  \
    do {                            \
        Error must_error = {""};    \
        Error *error = &must_error; \
        must(call, error);          \
    } while (0)

static const Kernel *kernel_of(KernelShape shape)
{
    const Kernel *kernel;
    if (!cpu)
        MUST(device_open("cpu", 0, &cpu, error));
    MUST(device_kernel(cpu, &shape, &kernel, error));
    return kernel;
}

static Device *device(void)
{
    if (!cpu)
        MUST(device_open("cpu", 0, &cpu, error));
    return cpu;
}

void mock_kernels_end(void)
{
    device_close(cpu);
    cpu = NULL;
}

#define READ(type, field, its_count)                     \
    {                                                    \
        offsetof(type, field), its_count, 0, true, false \
    }
#define WRITE(type, field, its_count)                    \
    {                                                    \
        offsetof(type, field), its_count, 0, false, true \
    }
#define UPDATE(type, field, its_count)                  \
    {                                                   \
        offsetof(type, field), its_count, 0, true, true \
    }
#define READ_OF(type, field, its_count, its_size)               \
    {                                                           \
        offsetof(type, field), its_count, its_size, true, false \
    }
#define WRITE_OF(type, field, its_count, its_size)              \
    {                                                           \
        offsetof(type, field), its_count, its_size, false, true \
    }
#define UPDATE_OF(type, field, its_count, its_size)            \
    {                                                          \
        offsetof(type, field), its_count, its_size, true, true \
    }

#define OPERANDS(name, type, ...)                                                \
    static size_t name##_operands(const void *parameters, MockOperand *operands) \
    {                                                                            \
        const type *p = parameters;                                              \
        const MockOperand all[] = {__VA_ARGS__};                                 \
        _Static_assert(sizeof all / sizeof *all <= MOCK_OPERANDS, "");           \
        (void)p;                                                                 \
        memcpy(operands, all, sizeof all);                                       \
        return sizeof all / sizeof *all;                                         \
    }                                                                            \
    static void name##_run(const void *parameters)                               \
    {                                                                            \
        const type *p = parameters;

#define MN ((size_t)p->m * p->n)
#define RC ((size_t)p->rows * p->columns)

OPERANDS(product_forward, Product, READ(Product, a, (size_t)p->m * p->k), READ(Product, b, (size_t)p->k * p->n),
         READ(Product, bias, p->n), READ(Product, residual, MN), WRITE(Product, c, MN), WRITE(Product, gelu, MN))
const Kernel *linear = kernel_of((KernelShape){.kind = KERNEL_LINEAR, .rows = p->m, .columns = p->k, .outputs = p->n});
const Kernel *gelu = kernel_of((KernelShape){.kind = KERNEL_GELU, .rows = p->m, .columns = p->n});
MUST(RUN_OP(device(), error, linear_forward, with_kernel(linear), p->a, p->b, p->bias, p->residual, p->c));
if (p->gelu)
    MUST(RUN_OP(device(), error, gelu_forward, with_kernel(gelu), p->c, p->gelu));
}

OPERANDS(product_input, Product, READ(Product, a, (size_t)p->m * p->k), READ(Product, b, (size_t)p->k * p->n),
         READ(Product, gelu_input, MN), WRITE(Product, c, MN))
const Kernel *linear = kernel_of((KernelShape){.kind = KERNEL_LINEAR, .rows = p->m, .columns = p->n, .outputs = p->k});
const Kernel *gelu = kernel_of((KernelShape){.kind = KERNEL_GELU, .rows = p->m, .columns = p->n});
MUST(RUN_OP(device(), error, linear_backward_input, with_kernel(linear), p->a, p->b, p->c));
if (p->gelu_input)
    MUST(RUN_OP(device(), error, gelu_backward, with_kernel(gelu), p->gelu_input, p->c, p->c));
}

OPERANDS(product_weight, Product, READ(Product, a, (size_t)p->m * p->k), READ(Product, b, (size_t)p->k * p->n),
         UPDATE_OF(Product, c, MN, 4), UPDATE_OF(Product, column_sums, p->n, 4))
const Kernel *linear = kernel_of((KernelShape){.kind = KERNEL_LINEAR, .rows = p->k, .columns = p->m, .outputs = p->n});
MUST(RUN_OP(device(), error, linear_backward_weight, with_kernel(linear), p->a, p->b, p->c, p->column_sums));
}

static const Kernel *attention_kernel(const Attention *p)
{
    return kernel_of((KernelShape){
        .kind = KERNEL_ATTENTION, .rows = p->rows, .columns = p->columns, .sequence = p->sequence, .heads = p->heads});
}

OPERANDS(attention_forward, Attention, READ(Attention, qkv, 3 * RC), WRITE(Attention, y, RC),
         WRITE_OF(Attention, logsumexp, (size_t)p->rows * p->heads, 4))
const Kernel *attention = attention_kernel(p);
void *context = malloc(attention->context * sizeof(float) + 1);
MUST(RUN_OP(device(), error, attention_forward, with_kernel(attention), p->qkv, p->y, context));
for (size_t i = 0; i < (size_t)p->rows * p->heads; i++)
    p->logsumexp[i] = 1;
free(context);
}

OPERANDS(attention_delta, Attention, READ(Attention, y, RC), READ(Attention, dy, RC),
         WRITE_OF(Attention, delta, (size_t)p->rows * p->heads, 4))
for (size_t i = 0; i < (size_t)p->rows * p->heads; i++)
    p->delta[i] = 2;
}

OPERANDS(attention_backward, Attention, READ(Attention, qkv, 3 * RC), READ(Attention, y, RC), READ(Attention, dy, RC),
         READ_OF(Attention, logsumexp, (size_t)p->rows * p->heads, 4),
         READ_OF(Attention, delta, (size_t)p->rows * p->heads, 4), WRITE(Attention, dqkv, 3 * RC))
const Kernel *attention = attention_kernel(p);
float *context = malloc(attention->context * sizeof(float) + 1), *y = malloc(RC * sizeof *y + 1);
for (size_t i = 0; i < (size_t)p->rows * p->heads; i++)
    /* attention_forward and attention_delta of the mock write 1 and 2: other values mean that they have not run
       before */
    if (!(p->logsumexp[i] == 1 && p->delta[i] == 2))
        abort();
MUST(RUN_OP(device(), error, attention_forward, with_kernel(attention), p->qkv, y, context));
MUST(RUN_OP(device(), error, attention_backward, with_kernel(attention), p->qkv, p->y, context, p->dy, p->dqkv));
free(context);
free(y);
}

static const Kernel *norm_kernel(const Norm *p)
{
    return kernel_of((KernelShape){.kind = KERNEL_NORM, .rows = p->rows, .columns = p->columns});
}

OPERANDS(norm_forward, Norm, READ(Norm, x, RC), READ(Norm, gain, p->columns), READ(Norm, shift, p->columns),
         WRITE(Norm, y, RC), WRITE_OF(Norm, statistics, 2 * (size_t)p->rows, 4))
MUST(RUN_OP(device(), error, norm_forward, with_kernel(norm_kernel(p)), p->x, p->gain, p->shift, p->y, p->statistics));
}

OPERANDS(norm_backward_input, Norm, READ(Norm, x, RC), READ_OF(Norm, statistics, 2 * (size_t)p->rows, 4),
         READ(Norm, gain, p->columns), READ(Norm, dy, RC), READ(Norm, residual, RC), WRITE(Norm, dx, RC))
MUST(RUN_OP(device(), error, norm_backward_input, with_kernel(norm_kernel(p)), p->x, p->statistics, p->gain, p->dy,
            p->residual, p->dx));
}

OPERANDS(norm_backward_weight, Norm, READ(Norm, x, RC), READ_OF(Norm, statistics, 2 * (size_t)p->rows, 4),
         READ(Norm, dy, RC), UPDATE_OF(Norm, dgain, p->columns, 4), UPDATE_OF(Norm, dshift, p->columns, 4))
MUST(RUN_OP(device(), error, norm_backward_weight, with_kernel(norm_kernel(p)), p->x, p->statistics, p->dy, p->dgain,
            p->dshift));
}

static const Kernel *gelu_kernel(const Elementwise *p)
{
    return kernel_of((KernelShape){.kind = KERNEL_GELU, .rows = 1, .columns = p->count});
}

OPERANDS(gelu_forward, Elementwise, READ(Elementwise, from, p->count), WRITE(Elementwise, to, p->count))
MUST(RUN_OP(device(), error, gelu_forward, with_kernel(gelu_kernel(p)), p->from, p->to));
}

OPERANDS(gelu_backward, Elementwise, READ(Elementwise, from, p->count), READ(Elementwise, other, p->count),
         WRITE(Elementwise, to, p->count))
MUST(RUN_OP(device(), error, gelu_backward, with_kernel(gelu_kernel(p)), p->from, p->other, p->to));
}

OPERANDS(accumulate, Elementwise, READ(Elementwise, from, p->count), UPDATE(Elementwise, to, p->count))
MUST(device()->run->accumulate(cpu, p->count, p->from, p->to, error));
}

OPERANDS(fill, Elementwise, WRITE(Elementwise, to, p->count))
MUST(device()->run->fill(cpu, COMPUTE_TYPE, p->count, (double)p->value, p->to, error));
}

OPERANDS(to_float, Elementwise, READ(Elementwise, from, p->count), WRITE_OF(Elementwise, to, p->count, 4))
memcpy(p->to, p->from, p->count * sizeof(float));
}

OPERANDS(from_float, Elementwise, READ_OF(Elementwise, from, p->count, 4), WRITE(Elementwise, to, p->count))
memcpy(p->to, p->from, p->count * sizeof(float));
}

static size_t largest_token(const Embedding *p)
{
    int largest = 0;
    for (unsigned i = 0; i < p->rows; i++)
        largest = p->tokens[i] > largest ? p->tokens[i] : largest;
    return (size_t)largest + 1;
}

/* When the kernel is enqueued, its tokens are unknown, and so are the rows of the token table that it will read: the
   first row represents all. */
OPERANDS(embedding_forward, Embedding, READ_OF(Embedding, tokens, p->rows, 4), READ(Embedding, token_table, p->columns),
         READ(Embedding, position_table, (size_t)p->sequence * p->columns), WRITE(Embedding, y, RC))
MUST(RUN_OP(device(), error, embedding_forward, with_table(p->rows, p->columns, p->sequence), p->tokens, p->token_table,
            p->position_table, p->y));
}

OPERANDS(embedding_backward, Embedding, READ_OF(Embedding, tokens, p->rows, 4), READ(Embedding, dy, RC),
         UPDATE_OF(Embedding, dtoken_table, p->columns, 4),
         UPDATE_OF(Embedding, dposition_table, (size_t)p->sequence * p->columns, 4))
MUST(RUN_OP(device(), error, embedding_backward, with_table(p->rows, p->columns, p->sequence), p->tokens, p->dy,
            p->dtoken_table, p->dposition_table));
}

OPERANDS(cross_entropy, CrossEntropy, UPDATE(CrossEntropy, logits, RC), READ_OF(CrossEntropy, targets, p->rows, 4),
         WRITE_OF(CrossEntropy, row_losses, p->rows, 8))
const Kernel *kernel = kernel_of((KernelShape){.kind = KERNEL_CROSS_ENTROPY, .rows = p->rows, .columns = p->columns});
double loss;
MUST(RUN_OP(device(), error, cross_entropy, with_scale(kernel, (double)p->scale), p->targets, p->logits, &loss));
for (unsigned i = 0; i < p->rows; i++)
    p->row_losses[i] = loss;
}

OPERANDS(squared_error, SquaredError, READ(SquaredError, y, p->count), READ_OF(SquaredError, targets, p->count, 4),
         WRITE(SquaredError, dy, p->count), WRITE_OF(SquaredError, partial, sum_partials(p->count), 8))
double loss;
MUST(RUN_OP(device(), error, squared_error, with_count_and_scale(p->count, (double)p->scale), p->y, p->targets, p->dy,
            &loss));
memset(p->partial, 0, sum_partials(p->count) * sizeof *p->partial);
p->partial[0] = loss * (double)p->count;
}

OPERANDS(sum_of_squares, Sum, READ_OF(Sum, values, p->count, 4), WRITE_OF(Sum, partial, sum_partials(p->count), 8))
memset(p->partial, 0, sum_partials(p->count) * sizeof *p->partial);
MUST(device()->run->sum_of_squares(cpu, p->count, p->values, p->partial, error));
}

OPERANDS(finish_sum, Sum, READ_OF(Sum, partial, p->count, 8), WRITE_OF(Sum, result, 1, 8))
double sum = 0;
for (size_t i = 0; i < p->count; i++)
    sum += p->partial[i];
*p->result = sum * p->scale;
}

OPERANDS(adamw, AdamWStep, UPDATE_OF(AdamWStep, parameters, p->count, 4), UPDATE_OF(AdamWStep, gradients, p->count, 4),
         UPDATE_OF(AdamWStep, moment1, p->count, 4), UPDATE_OF(AdamWStep, moment2, p->count, 4),
         WRITE_OF(AdamWStep, bf16_copy, p->count, 2))
for (size_t i = 0; i < p->count; i++) {
    const float gradient = p->clip * p->gradients[i];
    p->moment1[i] = p->beta1 * p->moment1[i] + p->one_minus_beta1 * gradient;
    p->moment2[i] = p->beta2 * p->moment2[i] + p->one_minus_beta2 * (gradient * gradient);
    p->parameters[i] -= p->rate * p->decay * p->parameters[i];
    p->parameters[i] -=
        p->rate_corrected * p->moment1[i] / (sqrtf(p->moment2[i]) * p->inverse_root_correction + p->epsilon);
    p->gradients[i] = 0;
    if (p->bf16_copy) {
        uint32_t bits;
        memcpy(&bits, &p->parameters[i], sizeof bits);
        ((uint16_t *)p->bf16_copy)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
}

OPERANDS(copy_bytes, Copy, READ_OF(Copy, from, p->bytes, 1), WRITE_OF(Copy, to, p->bytes, 1))
memcpy(p->to, p->from, p->bytes);
}

/* The Hopper kernels get their matrices as maps and as pointers; this code ignores the maps. */
#define HOPPER(name, of, Parameters, field)                                      \
    static size_t name##_operands(const void *parameters, MockOperand *operands) \
    {                                                                            \
        const Parameters *p = parameters;                                        \
        const size_t count = of##_operands(&p->field, operands);                 \
        for (size_t i = 0; i < count; i++)                                       \
            operands[i].offset += offsetof(Parameters, field);                   \
        return count;                                                            \
    }                                                                            \
    static void name##_run(const void *parameters) { of##_run(&((const Parameters *)parameters)->field); }
HOPPER(hopper_forward, product_forward, HopperProduct, product)
HOPPER(hopper_input, product_input, HopperProduct, product)
HOPPER(hopper_weight, product_weight, HopperProduct, product)
HOPPER(hopper_attention_forward, attention_forward, HopperAttention, attention)
HOPPER(hopper_attention_backward, attention_backward, HopperAttention, attention)

#define ENTRY(file, name, parameters) {#name, sizeof(parameters), name##_operands, name##_run, #file},
static const MockKernel of_elements[] = {KERNELS_OF_COMPUTE_TYPES(ENTRY)};
static const MockKernel of_floats[] = {KERNELS_OF_FLOATS(ENTRY)};
#define TABLE(file, name, parameters) {#name, sizeof(parameters), NULL, NULL, #file},
static const MockKernel of_hopper[] = {KERNELS_OF_HOPPER(ENTRY) KERNELS_OF_HOPPER_TABLES(TABLE)};
static const MockKernel of_tables[] = {KERNELS_OF_TABLES(TABLE)};

static bool is_named(const MockKernel *kernel, const char *suffix, const char *full_name)
{
    const size_t length = strlen(kernel->name);
    return strncmp(full_name, kernel->name, length) == 0 && strcmp(full_name + length, suffix) == 0;
}

const MockKernel *mock_kernel(const char *full_name, size_t *element_size)
{
    for (*element_size = 2; *element_size <= 4; *element_size += 2) {
        const char *suffix = *element_size == 2 ? "_bf16" : "_f32";
        for (size_t i = 0; i < sizeof of_elements / sizeof *of_elements; i++)
            if (is_named(&of_elements[i], suffix, full_name))
                return &of_elements[i];
        for (size_t i = 0; i < sizeof of_tables / sizeof *of_tables; i++)
            if (is_named(&of_tables[i], suffix, full_name))
                return &of_tables[i];
    }
    *element_size = 4;
    for (size_t i = 0; i < sizeof of_floats / sizeof *of_floats; i++)
        if (is_named(&of_floats[i], "", full_name))
            return &of_floats[i];
    *element_size = 2;
    for (size_t i = 0; i < sizeof of_hopper / sizeof *of_hopper; i++)
        if (is_named(&of_hopper[i], "", full_name))
            return &of_hopper[i];
    return NULL;
}

bool mock_is_in(const char *unit, const MockKernel *kernel, const char *full_name)
{
    const size_t length = strlen(kernel->file);
    const char *suffix = full_name + strlen(kernel->name), *type = unit + length;
    if (strncmp(unit, kernel->file, length) != 0)
        return false;
    if (*suffix)
        return *type == '.' && strcmp(type + 1, suffix + 1) == 0;
    return !*type || strcmp(type, ".f32") == 0;
}

/* --- bfloat16 operands --- */

static void widen(const uint16_t *from, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static void narrow(const float *from, uint16_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

void mock_run(const MockKernel *kernel, size_t element_size, const void *parameters)
{
    if (element_size == 4) {
        kernel->run(parameters);
        return;
    }
    MockOperand operands[MOCK_OPERANDS];
    float *floats[MOCK_OPERANDS] = {NULL};
    void *given[MOCK_OPERANDS];
    char *copy = aligned_alloc(128, (kernel->parameter_bytes + 127) / 128 * 128);
    memcpy(copy, parameters, kernel->parameter_bytes);
    const size_t count = kernel->operands(parameters, operands);
    for (size_t i = 0; i < count; i++) {
        memcpy(&given[i], copy + operands[i].offset, sizeof given[i]);
        if (operands[i].size != 0 || !given[i])
            continue;
        size_t elements = operands[i].count;
        if (strcmp(kernel->name, "embedding_forward") == 0 && operands[i].offset == offsetof(Embedding, token_table))
            elements *= largest_token(parameters);
        floats[i] = malloc(elements * sizeof(float) + 1);
        /* outputs are converted as well: a kernel may write only some rows of a matrix */
        widen(given[i], floats[i], elements);
        memcpy(copy + operands[i].offset, &floats[i], sizeof floats[i]);
    }
    kernel->run(copy);
    for (size_t i = 0; i < count; i++) {
        if (floats[i] && operands[i].written)
            narrow(floats[i], given[i], operands[i].count);
        free(floats[i]);
    }
    free(copy);
}
