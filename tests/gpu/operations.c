/* Compares the emulated kernels, except the fused ones, with the oracle's operations: on random data, and with shapes
   that do not divide into tiles. A tensor that a kernel overwrites is NaN before, unless it is also an input. */

#include "runtime/device/device.h"
#include "tests/device/run_op.h"
#include "runtime/model/random.h"
#include "tests/gpu/emulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static Device *oracle;
static Error error;
static uint64_t next_key;

#define OK(call)                                                \
    do {                                                        \
        error.text[0] = '\0';                                   \
        if ((call) != STATUS_OK)                                \
            fail_msg("%s:%d: %s", #call, __LINE__, error.text); \
    } while (0)
#define ORACLE(...) OK(oracle->run->__VA_ARGS__)
#define ORACLE_OP(...) OK(RUN_OP(oracle, &error, __VA_ARGS__))

/* ---- tensors: the kernel's elements, and the oracle's doubles of the same values ---- */

typedef enum Type { F32, BF16 } Type;
static const char *const suffixes[] = {"_f32", "_bf16"};
/* by Type: bounds of |x - y| / |y|, where x is the kernel's result and y the oracle's */
static const double bounds[] = {1e-5, 1e-2};

typedef struct Tensor {
    Type type;
    size_t count;
    void *device; /* float or bfloat16 */
    double *exact;
} Tensor;

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float element(const Tensor *t, size_t i)
{
    if (t->type == F32)
        return ((const float *)t->device)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)t->device)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static size_t bytes_of(const Tensor *t) { return t->count * (t->type == F32 ? 4 : 2); }

static Tensor filled(Type type, size_t count, double deviation, double offset)
{
    Tensor t = {type, count, NULL, malloc(count * sizeof(double) + 1)};
    /* allocates only one byte more than needed, so that the address sanitizer finds accesses past the end */
    if (posix_memalign(&t.device, 64, bytes_of(&t) + 1))
        fail();
    next_key++;
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(offset + deviation * (double)random_normal(next_key, i));
        if (type == F32)
            ((float *)t.device)[i] = value;
        else
            ((uint16_t *)t.device)[i] = isnan(value) ? 0x7fff : bf16_of(value);
        t.exact[i] = (double)element(&t, i);
    }
    return t;
}

static Tensor normal(Type type, size_t count) { return filled(type, count, 1, 0); }
static Tensor poisoned(Type type, size_t count) { return filled(type, count, 0, (double)NAN); }

static void release(Tensor t)
{
    free(t.device);
    free(t.exact);
}

static void assert_near(const Tensor *t, double bound, const char *what)
{
    double difference = 0, size = 1e-30; /* not 0, so that tiny differences are allowed if all expected values are 0 */
    for (size_t i = 0; i < t->count; i++) {
        const double got = (double)element(t, i), expected = t->exact[i];
        if (!isfinite(got))
            fail_msg("%s: element %zu of %zu is %g, should be %g", what, i, t->count, got, expected);
        difference += (got - expected) * (got - expected);
        size += expected * expected;
    }
    if (difference > bound * bound * size)
        fail_msg("%s: |x - y| / |y| is %.3g", what, sqrt(difference / size));
}

static void assert_near_and_release(Tensor t, const char *what)
{
    assert_near(&t, bounds[t.type], what);
    release(t);
}

/* ---- kernels ---- */

static const char *with_suffix(const char *name, Type type)
{
    static char whole[64];
    snprintf(whole, sizeof whole, "%s%s", name, suffixes[type]);
    return whole;
}

static void run_named(const char *name, const void *parameters, Launch launch)
{
    const char *problem = emulate(name, parameters, launch);
    if (problem)
        fail_msg("%s: %s", name, problem);
}

static void run(const char *name, Type type, const void *parameters, Launch launch)
{
    run_named(with_suffix(name, type), parameters, launch);
}

static const Kernel *kernel_of(KernelShape shape)
{
    const Kernel *kernel;
    OK(device_kernel(oracle, &shape, &kernel, &error));
    return kernel;
}

static void test_products(Type type)
{
    static const unsigned shapes[][3] = {{1, 1, 1},       {3, 5, 7},     {33, 17, 65},
                                         {130, 128, 136}, {7, 304, 200}, {128, 72, 264}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const unsigned rows = shapes[s][0], columns = shapes[s][1], outputs = shapes[s][2];
        const Kernel *linear =
            kernel_of((KernelShape){.kind = KERNEL_LINEAR, .rows = rows, .columns = columns, .outputs = outputs});
        const Kernel *gelu_out = kernel_of((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = outputs});
        const Kernel *gelu_in = kernel_of((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = columns});
        const Tensor x = normal(type, rows * columns), w = normal(type, columns * outputs),
                     bias = normal(type, outputs);
        const Tensor residual = normal(type, rows * outputs), dy = normal(type, rows * outputs);
        for (int with = 0; with < 8; with += s == 1 ? 1 : 7) {
            Tensor y = poisoned(type, rows * outputs), active = poisoned(type, rows * outputs);
            const Product p = {.a = x.device,
                               .b = w.device,
                               .c = y.device,
                               .m = rows,
                               .n = outputs,
                               .k = columns,
                               .bias = with & 1 ? bias.device : NULL,
                               .residual = with & 2 ? residual.device : NULL,
                               .gelu = with & 4 ? active.device : NULL};
            run("product_forward", type, &p, product_launch(&p));
            ORACLE_OP(linear_forward, with_kernel(linear), x.exact, w.exact, with & 1 ? bias.exact : NULL,
                      with & 2 ? residual.exact : NULL, y.exact);
            assert_near(&y, bounds[type], "y");
            if (with & 4) {
                ORACLE_OP(gelu_forward, with_kernel(gelu_out), y.exact, active.exact);
                assert_near(&active, bounds[type], "gelu of y");
            }
            release(y), release(active);
        }
        for (int with = 0; with < 2; with++) {
            Tensor dx = poisoned(type, rows * columns);
            const Product p = {.a = dy.device,
                               .b = w.device,
                               .c = dx.device,
                               .m = rows,
                               .n = columns,
                               .k = outputs,
                               .gelu_input = with ? x.device : NULL};
            run("product_input", type, &p, product_launch(&p));
            ORACLE_OP(linear_backward_input, with_kernel(linear), dy.exact, w.exact, dx.exact);
            if (with)
                ORACLE_OP(gelu_backward, with_kernel(gelu_in), x.exact, dx.exact, dx.exact);
            assert_near_and_release(dx, "dx");
        }
        for (int with = 0; with < 2; with++) {
            const Tensor dw = normal(F32, columns * outputs), dbias = normal(F32, outputs);
            const Product p = {.a = x.device,
                               .b = dy.device,
                               .c = dw.device,
                               .m = columns,
                               .n = outputs,
                               .k = rows,
                               .column_sums = with ? dbias.device : NULL};
            run("product_weight", type, &p, product_launch(&p));
            ORACLE_OP(linear_backward_weight, with_kernel(linear), x.exact, dy.exact, dw.exact,
                      with ? dbias.exact : NULL);
            /* the weight gradient is float in both modes, so the bound is that of float */
            assert_near_and_release(dw, "dw");
            assert_near_and_release(dbias, "dbias");
        }
        release(x), release(w), release(bias), release(residual), release(dy);
    }
    assert_int_equal(emulated_bank_conflicts(), 0);
}

/* Runs a product with TMA and wgmma in bfloat16. `multiprocessors` is small, so that a block computes more than one
   tile. */
static void run_hopper(const char *name, ProductLayout layout, const Product *p, unsigned columns,
                       unsigned multiprocessors, unsigned cluster)
{
    assert_true(hopper_takes(layout, p));
    HopperProduct with_maps = {
        .product = *p, .columns = columns, .band = hopper_band(p, columns, multiprocessors, cluster)};
    const TensorMapShape a = tensor_map_shape(layout, p, 0), b = tensor_map_shape(layout, p, 1);
    emulated_tensor_map(&with_maps.a, p->a, &a);
    emulated_tensor_map(&with_maps.b, p->b, &b);
    run_named(name, &with_maps, hopper_launch(&with_maps, multiprocessors, cluster));
}

/* The shapes have 1, 2, 2, 3 rows of tiles in forward products, and 1, 3, 1, 1 in weight gradients. With 3 rows one
   block of a cluster is idle. */
static void test_hopper(void **state)
{
    (void)state;
    static const unsigned shapes[][3] = {{8, 8, 8}, {136, 328, 264}, {200, 64, 520}, {296, 72, 264}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const unsigned rows = shapes[s][0], columns = shapes[s][1], outputs = shapes[s][2];
        const Kernel *linear =
            kernel_of((KernelShape){.kind = KERNEL_LINEAR, .rows = rows, .columns = columns, .outputs = outputs});
        const Tensor x = normal(BF16, rows * columns), w = normal(BF16, columns * outputs),
                     bias = normal(BF16, outputs);
        const Tensor residual = normal(BF16, rows * outputs), dy = normal(BF16, rows * outputs);
        for (unsigned i = 0; i < 4; i++) {
            const unsigned cluster = 1 + i % 2, tile = i < 2 ? HOPPER_TILE_N : HOPPER_NARROW_N;
            const unsigned multiprocessors = s % 2 ? 2 : 5;
            const Tensor y = poisoned(BF16, rows * outputs), dx = poisoned(BF16, rows * columns);
            const Tensor dw = normal(F32, columns * outputs), dbias = normal(F32, outputs);
            run_hopper("hopper_forward", PRODUCT_FORWARD,
                       &(Product){.a = x.device,
                                  .b = w.device,
                                  .c = y.device,
                                  .bias = bias.device,
                                  .residual = residual.device,
                                  .m = rows,
                                  .n = outputs,
                                  .k = columns},
                       tile, multiprocessors, cluster);
            run_hopper("hopper_input", PRODUCT_INPUT,
                       &(Product){.a = dy.device, .b = w.device, .c = dx.device, .m = rows, .n = columns, .k = outputs},
                       tile, multiprocessors, cluster);
            run_hopper("hopper_weight", PRODUCT_WEIGHT,
                       &(Product){.a = x.device,
                                  .b = dy.device,
                                  .c = dw.device,
                                  .column_sums = dbias.device,
                                  .m = columns,
                                  .n = outputs,
                                  .k = rows},
                       tile, multiprocessors, cluster);
            ORACLE_OP(linear_forward, with_kernel(linear), x.exact, w.exact, bias.exact, residual.exact, y.exact);
            ORACLE_OP(linear_backward_input, with_kernel(linear), dy.exact, w.exact, dx.exact);
            ORACLE_OP(linear_backward_weight, with_kernel(linear), x.exact, dy.exact, dw.exact, dbias.exact);
            assert_near_and_release(y, "hopper y");
            assert_near_and_release(dx, "hopper dx");
            assert_near_and_release(dw, "hopper dw");
            assert_near_and_release(dbias, "hopper dbias");
        }
        release(x), release(w), release(bias), release(residual), release(dy);
    }
}

static void test_norm(Type type)
{
    static const unsigned shapes[][2] = {{1, 3}, {5, 7}, {3, 16}, {70, 96}, {9, 1000}, {130, 40}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const unsigned rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
        const Kernel *norm = kernel_of((KernelShape){.kind = KERNEL_NORM, .rows = rows, .columns = columns});
        const Tensor x = filled(type, count, 3, 5), gain = normal(type, columns), shift = normal(type, columns);
        const Tensor dy = normal(type, count), residual = normal(type, count), statistics = poisoned(F32, 2 * rows);
        Tensor y = poisoned(type, count);
        Norm p = {.x = x.device,
                  .gain = gain.device,
                  .shift = shift.device,
                  .dy = dy.device,
                  .y = y.device,
                  .statistics = statistics.device,
                  .rows = rows,
                  .columns = columns};
        run("norm_forward", type, &p, norm_rows_launch(&p));
        ORACLE_OP(norm_forward, with_kernel(norm), x.exact, gain.exact, shift.exact, y.exact, statistics.exact);
        assert_near_and_release(y, "norm");
        assert_near(&statistics, 1e-5, "statistics");
        for (int with = 0; with < 2; with++) {
            const Tensor dx = poisoned(type, count);
            p.residual = with ? residual.device : NULL, p.dx = dx.device;
            run("norm_backward_input", type, &p, norm_rows_launch(&p));
            ORACLE_OP(norm_backward_input, with_kernel(norm), x.exact, statistics.exact, gain.exact, dy.exact,
                      with ? residual.exact : NULL, dx.exact);
            assert_near_and_release(dx, "norm dx");
        }
        const Tensor dgain = normal(F32, columns), dshift = normal(F32, columns);
        p.dgain = dgain.device, p.dshift = dshift.device;
        run("norm_backward_weight", type, &p, norm_columns_launch(&p));
        ORACLE_OP(norm_backward_weight, with_kernel(norm), x.exact, statistics.exact, dy.exact, dgain.exact,
                  dshift.exact);
        assert_near_and_release(dgain, "dgain");
        assert_near_and_release(dshift, "dshift");
        release(x), release(gain), release(shift), release(dy), release(residual), release(statistics);
    }
}

static void test_gelu(Type type)
{
    static const size_t counts[] = {1, 7, 4096, 5003};
    for (size_t s = 0; s < sizeof counts / sizeof *counts; s++)
        for (double deviation = 0.01; deviation < 200; deviation *= 10) {
            const size_t count = counts[s];
            const Kernel *gelu = kernel_of((KernelShape){.kind = KERNEL_GELU, .rows = 1, .columns = count});
            const Tensor x = filled(type, count, deviation, 0), y = poisoned(type, count), dy = normal(type, count);
            const Elementwise forward = {.from = x.device, .to = y.device, .count = count};
            const Elementwise backward = {.from = x.device, .other = dy.device, .to = dy.device, .count = count};
            run("gelu_forward", type, &forward, elementwise_launch(count));
            run("gelu_backward", type, &backward, elementwise_launch(count));
            ORACLE_OP(gelu_forward, with_kernel(gelu), x.exact, y.exact);
            ORACLE_OP(gelu_backward, with_kernel(gelu), x.exact, dy.exact, dy.exact);
            assert_near_and_release(y, "gelu");
            assert_near_and_release(dy, "gelu dx");
            release(x);
        }
}

/* Launches a kernel of attention that may use `most` bytes of shared memory. */
static void run_attention(const char *name, Type type, Attention p, int backward, unsigned most)
{
    const unsigned size = type == F32 ? 4 : 2;
    attention_fit(&p, size, backward, most);
    const Launch launch = backward ? attention_backward_launch(&p, size) : attention_forward_launch(&p, size);
    assert_true(launch.shared <= most);
    run(name, type, &p, launch);
}

static void attention_within(Type type, unsigned most)
{
    static const struct {
        unsigned samples, sequence, heads, width;
    } shapes[] = {{1, 1, 1, 1},    {2, 5, 3, 4},    {1, 64, 2, 24},   {2, 130, 2, 16},
                  {1, 129, 1, 40}, {1, 140, 2, 13}, {1, 200, 1, 128}, {1, 60, 2, 128}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const unsigned columns = shapes[s].heads * shapes[s].width, rows = shapes[s].samples * shapes[s].sequence;
        const Kernel *attention = kernel_of((KernelShape){.kind = KERNEL_ATTENTION,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .sequence = shapes[s].sequence,
                                                          .heads = shapes[s].heads});
        const Tensor qkv = normal(type, 3 * rows * columns), dy = normal(type, rows * columns);
        Tensor y = poisoned(type, rows * columns), dqkv = poisoned(type, 3 * rows * columns);
        const Tensor logsumexp = poisoned(F32, rows * shapes[s].heads), delta = poisoned(F32, rows * shapes[s].heads);
        double *probabilities = malloc(attention->context * sizeof *probabilities);
        const Attention p = {.qkv = qkv.device,
                             .y = y.device,
                             .dy = dy.device,
                             .dqkv = dqkv.device,
                             .logsumexp = logsumexp.device,
                             .delta = delta.device,
                             .rows = rows,
                             .columns = columns,
                             .sequence = shapes[s].sequence,
                             .heads = shapes[s].heads};
        run_attention("attention_forward", type, p, 0, most);
        run("attention_delta", type, &p, attention_delta_launch(&p));
        run_attention("attention_backward", type, p, 1, most);
        ORACLE_OP(attention_forward, with_kernel(attention), qkv.exact, y.exact, probabilities);
        ORACLE_OP(attention_backward, with_kernel(attention), qkv.exact, y.exact, probabilities, dy.exact, dqkv.exact);
        assert_near_and_release(y, "attention");
        assert_near_and_release(dqkv, "attention dqkv");
        release(qkv), release(dy), release(logsumexp), release(delta);
        free(probabilities);
    }
    assert_int_equal(emulated_bank_conflicts(), 0);
}

/* Tests with the largest shared memory (compute capability 9.0) and with the smallest one (8.6, 8.9 and 12.0). */
static void test_attention(Type type)
{
    attention_within(type, (227 << 10) - FUSED_HEAD);
    attention_within(type, (99 << 10) - FUSED_HEAD);
}

/* With TMA and wgmma. The forwards have 1, 2, 4, 6 and 9 tiles and the backwards twice as many, computed by 1 to 3
   blocks. */
static void test_hopper_attention(void **state)
{
    (void)state;
    static const struct {
        unsigned samples, sequence, heads, width, multiprocessors;
    } shapes[] = {{1, 1, 1, 64, 3}, {2, 5, 1, 128, 2}, {2, 130, 1, 128, 3}, {1, 300, 2, 64, 2}, {3, 257, 1, 128, 2}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const unsigned columns = shapes[s].heads * shapes[s].width, rows = shapes[s].samples * shapes[s].sequence;
        const Kernel *attention = kernel_of((KernelShape){.kind = KERNEL_ATTENTION,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .sequence = shapes[s].sequence,
                                                          .heads = shapes[s].heads});
        const Tensor qkv = filled(BF16, 3 * rows * columns, s == 3 ? 8 : 1, 0), dy = normal(BF16, rows * columns);
        Tensor y = poisoned(BF16, rows * columns), dqkv = poisoned(BF16, 3 * rows * columns);
        const Tensor logsumexp = poisoned(F32, rows * shapes[s].heads), delta = poisoned(F32, rows * shapes[s].heads);
        double *probabilities = malloc(attention->context * sizeof *probabilities);
        HopperAttention p = {.attention = {.qkv = qkv.device,
                                           .y = y.device,
                                           .dy = dy.device,
                                           .dqkv = dqkv.device,
                                           .logsumexp = logsumexp.device,
                                           .delta = delta.device,
                                           .rows = rows,
                                           .columns = columns,
                                           .sequence = shapes[s].sequence,
                                           .heads = shapes[s].heads,
                                           .tile = ATTENTION_TILE}};
        assert_true(hopper_attention_takes(&p.attention));
        for (int backward = 0; backward < 2; backward++) {
            const TensorMapShape of_qkv = attention_map_shape(&p.attention, 3, backward),
                                 of_dy = attention_map_shape(&p.attention, 1, backward);
            emulated_tensor_map(&p.qkv, qkv.device, &of_qkv);
            emulated_tensor_map(&p.dy, dy.device, &of_dy);
            run_named(backward ? "hopper_attention_backward" : "hopper_attention_forward", &p,
                      hopper_attention_launch(&p.attention, shapes[s].multiprocessors, backward));
            run("attention_delta", BF16, &p.attention, attention_delta_launch(&p.attention));
        }
        ORACLE_OP(attention_forward, with_kernel(attention), qkv.exact, y.exact, probabilities);
        ORACLE_OP(attention_backward, with_kernel(attention), qkv.exact, y.exact, probabilities, dy.exact, dqkv.exact);
        assert_near_and_release(y, "hopper attention");
        assert_near_and_release(dqkv, "hopper attention dqkv");
        release(qkv), release(dy), release(logsumexp), release(delta);
        free(probabilities);
    }
}

static void test_embedding(Type type)
{
    enum { SEQUENCE = 7, SAMPLES = 40, ROWS = SAMPLES * SEQUENCE, VOCABULARY = 11 };
    static const unsigned widths[] = {19, 24, 264};
    for (size_t s = 0; s < sizeof widths / sizeof *widths; s++) {
        const unsigned columns = widths[s];
        int32_t tokens[ROWS];
        for (size_t i = 0; i < ROWS; i++)
            tokens[i] = (int32_t)(random_bits(5, i) % VOCABULARY);
        const Tensor by_token = normal(type, VOCABULARY * columns), by_position = normal(type, SEQUENCE * columns);
        const Tensor y = poisoned(type, ROWS * columns), dy = normal(type, ROWS * columns);
        const Tensor dtoken = normal(F32, VOCABULARY * columns), dposition = normal(F32, SEQUENCE * columns);
        const Embedding p = {.tokens = tokens,
                             .token_table = by_token.device,
                             .position_table = by_position.device,
                             .dy = dy.device,
                             .y = y.device,
                             .dtoken_table = dtoken.device,
                             .dposition_table = dposition.device,
                             .rows = ROWS,
                             .columns = columns,
                             .sequence = SEQUENCE};
        run("embedding_forward", type, &p, embedding_forward_launch(&p));
        run("embedding_backward", type, &p, embedding_backward_launch(&p));
        ORACLE_OP(embedding_forward, with_table(ROWS, columns, SEQUENCE), tokens, by_token.exact, by_position.exact,
                  y.exact);
        ORACLE_OP(embedding_backward, with_table(ROWS, columns, SEQUENCE), tokens, dy.exact, dtoken.exact,
                  dposition.exact);
        assert_near_and_release(y, "embedding");
        assert_near_and_release(dtoken, "embedding dtokens");
        assert_near_and_release(dposition, "embedding dpositions");
        release(by_token), release(by_position), release(dy);
    }
}

static void test_cross_entropy(Type type)
{
    static const unsigned shapes[][2] = {{1, 2}, {5, 7}, {33, 256}, {2, 3001}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (double deviation = 0.1; deviation < 20000; deviation *= 100) { /* a large one makes most probabilities 0 */
            const unsigned rows = shapes[s][0], columns = shapes[s][1];
            const Kernel *kernel =
                kernel_of((KernelShape){.kind = KERNEL_CROSS_ENTROPY, .rows = rows, .columns = columns});
            int32_t targets[64];
            for (size_t i = 0; i < rows; i++)
                targets[i] = (int32_t)(random_bits(6, i) % columns);
            const Tensor logits = filled(type, rows * columns, deviation, deviation);
            double row_losses[64], loss = (double)NAN, expected = (double)NAN;
            const CrossEntropy p = {.logits = logits.device,
                                    .targets = targets,
                                    .row_losses = row_losses,
                                    .scale = 0.05f,
                                    .rows = rows,
                                    .columns = columns};
            const Sum sum = {.partial = row_losses, .result = &loss, .scale = 1 / (double)rows, .count = rows};
            run("cross_entropy", type, &p, cross_entropy_launch(&p));
            run_named("finish_sum", &sum, finish_sum_launch());
            ORACLE_OP(cross_entropy, with_scale(kernel, 0.05), targets, logits.exact, &expected);
            assert_true(fabs(loss - expected) <= 1e-6 * fmax(1, expected));
            for (size_t i = 0; i < logits.count; i++)
                assert_true(fabs((double)element(&logits, i) - logits.exact[i]) <=
                            0.05 / (double)rows * (type == F32 ? 1e-6 : 4e-3));
            release(logits);
        }
}

static void test_squared_error(Type type)
{
    enum { COUNT = 17003 };
    const Tensor y = normal(type, COUNT), dy = poisoned(type, COUNT), targets = normal(F32, COUNT);
    double partial[2], loss = (double)NAN, expected = (double)NAN;
    const SquaredError p = {
        .y = y.device, .targets = targets.device, .dy = dy.device, .partial = partial, .scale = 0.25f, .count = COUNT};
    const Sum sum = {.partial = partial, .result = &loss, .scale = 1.0 / COUNT, .count = sum_partials(COUNT)};
    run("squared_error", type, &p, sum_launch(COUNT));
    run_named("finish_sum", &sum, finish_sum_launch());
    ORACLE_OP(squared_error, with_count_and_scale(COUNT, 0.25), y.exact, targets.device, dy.exact, &expected);
    assert_true(fabs(loss - expected) <= 1e-6 * expected);
    assert_near_and_release(dy, "squared error");
    release(y), release(targets);
}

static void test_memory(Type type)
{
    static const size_t counts[] = {1, 7, 8, 1000, 4099};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const size_t count = counts[c];
        const Tensor x = normal(type, count), seven = poisoned(type, count), sum = normal(type, count);
        const Tensor copied = poisoned(type, count), as_float = poisoned(F32, count), back = poisoned(type, count);
        const Elementwise fill = {.to = seven.device, .value = 7, .count = count};
        const Elementwise accumulate = {.from = x.device, .to = sum.device, .count = count};
        const Elementwise to_float = {.from = x.device, .to = as_float.device, .count = count};
        const Elementwise from_float = {.from = as_float.device, .to = back.device, .count = count};
        const Copy copy = {x.device, copied.device, bytes_of(&x)};
        run("fill", type, &fill, elementwise_launch(count));
        run("accumulate", type, &accumulate, elementwise_launch(count));
        run("to_float", type, &to_float, elementwise_launch(count));
        run("from_float", type, &from_float, elementwise_launch(count));
        run_named("copy_bytes", &copy, copy_launch(copy.bytes));
        for (size_t i = 0; i < count; i++) {
            assert_true((double)element(&seven, i) == 7);
            assert_true((double)((float *)as_float.device)[i] == x.exact[i]);
        }
        assert_memory_equal(x.device, copied.device, bytes_of(&x));
        assert_memory_equal(x.device, back.device, bytes_of(&x));
        ORACLE(accumulate(oracle, count, x.exact, sum.exact, &error));
        assert_near_and_release(sum, "accumulate");
        release(x), release(seven), release(copied), release(as_float), release(back);
    }
}

static void test_sum_of_squares(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 1003, SUM_CHUNK, 3 * SUM_CHUNK + 5};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const Tensor x = normal(F32, counts[c]);
        double partial[4], result = (double)NAN, expected = (double)NAN;
        const Sum sum = {.values = x.device, .partial = partial, .result = &result, .scale = 1, .count = counts[c]};
        Sum finish = sum;
        finish.count = sum_partials(counts[c]);
        run_named("sum_of_squares", &sum, sum_launch(counts[c]));
        run_named("finish_sum", &finish, finish_sum_launch());
        ORACLE(sum_of_squares(oracle, counts[c], x.exact, &expected, &error));
        assert_true(fabs(result - expected) <= 1e-12 * expected);
        release(x);
    }
}

static void test_adamw(void **state)
{
    (void)state;
    enum { COUNT = 5003 };
    const AdamW s = {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 0.3, .step = 5};
    const Tensor p = normal(F32, COUNT), g = normal(F32, COUNT), m = normal(F32, COUNT), v = filled(F32, COUNT, 0.1, 1);
    const Tensor copy = poisoned(BF16, COUNT);
    const double step = (double)s.step;
    const AdamWStep step_of = {
        .parameters = p.device,
        .gradients = g.device,
        .moment1 = m.device,
        .moment2 = v.device,
        .bf16_copy = copy.device,
        .rate = (float)s.rate,
        .rate_corrected = (float)(s.rate / (1 - pow(s.beta1, step))),
        .beta1 = (float)s.beta1,
        .beta2 = (float)s.beta2,
        .one_minus_beta1 = (float)(1 - s.beta1),
        .one_minus_beta2 = (float)(1 - s.beta2),
        .inverse_root_correction = (float)(1 / sqrt(1 - pow(s.beta2, step))),
        .epsilon = (float)s.epsilon,
        .decay = (float)s.decay,
        .clip = (float)s.clip,
        .count = COUNT,
    };
    run_named("adamw", &step_of, elementwise_launch(COUNT));
    ORACLE(adamw(oracle, &s, COUNT, p.exact, g.exact, m.exact, v.exact, NULL, &error));
    for (size_t i = 0; i < COUNT; i++)
        assert_true((double)element(&g, i) == 0 && ((uint16_t *)copy.device)[i] == bf16_of(element(&p, i)));
    assert_near_and_release(p, "parameters");
    assert_near_and_release(m, "moment");
    assert_near_and_release(v, "second moment");
    release(g), release(copy);
}

#define BOTH_TYPES(name)                                             \
    static void name##_f32(void **state) { (void)state, name(F32); } \
    static void name##_bf16(void **state) { (void)state, name(BF16); }
BOTH_TYPES(test_products)
BOTH_TYPES(test_norm)
BOTH_TYPES(test_gelu)
BOTH_TYPES(test_attention)
BOTH_TYPES(test_embedding)
BOTH_TYPES(test_cross_entropy)
BOTH_TYPES(test_squared_error)
BOTH_TYPES(test_memory)
#define UNIT(name) cmocka_unit_test(name##_f32), cmocka_unit_test(name##_bf16)

static int open_oracle(void **state)
{
    (void)state;
    return (int)device_open("oracle", 0, &oracle, &error);
}

static int close_oracle(void **state)
{
    (void)state;
    device_close(oracle);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT(test_products),
        cmocka_unit_test(test_hopper),
        UNIT(test_norm),
        UNIT(test_gelu),
        UNIT(test_attention),
        cmocka_unit_test(test_hopper_attention),
        UNIT(test_embedding),
        UNIT(test_cross_entropy),
        UNIT(test_squared_error),
        UNIT(test_memory),
        cmocka_unit_test(test_sum_of_squares),
        cmocka_unit_test(test_adamw),
    };
    return cmocka_run_group_tests(tests, open_oracle, close_oracle);
}
