/* Compares the operations of the models gpt and mlp on the CPU device with the oracle's, on random data. Operands that
   an operation writes are NaN before the call. */

#include "tests/device/pair.h"

#include <string.h>

enum { CPU = TESTED };

static void assert_within(Tensor tensor, double bound, const char *what, size_t rows, size_t columns)
{
    const float *got = tensor.at[CPU];
    const double *expected = tensor.at[ORACLE];
    for (size_t i = 0; i < tensor.count; i++)
        if (!isfinite(got[i]) || !isfinite(expected[i]) || fabs((double)got[i] - expected[i]) > bound)
            fail_msg("%s %zu x %zu: element %zu is %.9g, should be %.9g within %g", what, rows, columns, i,
                     (double)got[i], expected[i], bound);
}

/* Fails if an element is not finite, or differs by more than `bound` times the largest absolute value in the oracle's
   tensor. */
static void assert_close(Tensor tensor, double bound, const char *what, size_t rows, size_t columns)
{
    double largest = 1e-30;
    for (size_t i = 0; i < tensor.count; i++)
        largest = fmax(largest, fabs(((double *)tensor.at[ORACLE])[i]));
    assert_within(tensor, bound * largest, what, rows, columns);
}

static void assert_close_and_release(Tensor tensor, double bound, const char *what, size_t rows, size_t columns)
{
    assert_close(tensor, bound, what, rows, columns);
    release(tensor);
}

TEST(test_linear)
{
    /* for the last two shapes the CPU device divides y=xw along its columns */
    static const size_t shapes[][3] = {{1, 1, 1},       {3, 5, 7},   {33, 17, 65},   {64, 96, 384},
                                       {130, 128, 128}, {7, 300, 2}, {20, 300, 700}, {3, 70, 4000}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s][0], columns = shapes[s][1], outputs = shapes[s][2];
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_LINEAR, .rows = rows, .columns = columns, .outputs = outputs}, k);
        const Tensor x = normal(rows * columns), w = normal(columns * outputs), bias = normal(outputs);
        const Tensor residual = normal(rows * outputs), dy = normal(rows * outputs);
        for (int with = 0; with < 4; with++) {
            const Tensor y = poisoned(COMPUTE_TYPE, rows * outputs);
            BOTH_OP(linear_forward, with_kernel(k[d]), x.at[d], w.at[d], with & 1 ? bias.at[d] : NULL,
                    with & 2 ? residual.at[d] : NULL, y.at[d]);
            assert_close_and_release(y, 1e-5, "linear forward", rows, columns);
        }
        const Kernel *gelu_out[DEVICES], *gelu_in[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = outputs}, gelu_out);
        kernels_for((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = columns}, gelu_in);
        for (int with = 0; with < 2; with++) {
            const Tensor y = poisoned(COMPUTE_TYPE, rows * outputs), active = poisoned(COMPUTE_TYPE, rows * outputs);
            BOTH_OP(linear_gelu_forward, with_gelu(k[d], gelu_out[d]), x.at[d], w.at[d], with ? bias.at[d] : NULL,
                    y.at[d], active.at[d]);
            assert_close_and_release(y, 1e-5, "linear before GELU", rows, columns);
            assert_close_and_release(active, 1e-5, "GELU of linear", rows, columns);
        }
        const Tensor dbefore = poisoned(COMPUTE_TYPE, rows * columns);
        BOTH_OP(linear_gelu_backward_input, with_gelu(k[d], gelu_in[d]), dy.at[d], w.at[d], x.at[d], dbefore.at[d]);
        assert_close_and_release(dbefore, 1e-5, "linear dx before GELU", rows, columns);
        const Tensor dx = poisoned(COMPUTE_TYPE, rows * columns), dw = normal(columns * outputs),
                     dbias = normal(outputs);
        BOTH_OP(linear_backward_input, with_kernel(k[d]), dy.at[d], w.at[d], dx.at[d]);
        assert_close_and_release(dx, 1e-5, "linear dx", rows, columns);
        BOTH_OP(linear_backward_weight, with_kernel(k[d]), x.at[d], dy.at[d], dw.at[d], dbias.at[d]);
        BOTH_OP(linear_backward_weight, with_kernel(k[d]), x.at[d], dy.at[d], dw.at[d], NULL);
        assert_close_and_release(dw, 1e-5, "linear dw", rows, columns);
        assert_close_and_release(dbias, 1e-5, "linear dbias", rows, columns);
        release(x), release(w), release(bias), release(residual), release(dy);
    }
}

TEST(test_norm)
{
    static const size_t shapes[][2] = {{1, 3}, {5, 7}, {3, 16}, {64, 96}, {9, 1000}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_NORM, .rows = rows, .columns = columns}, k);
        const Tensor x = filled(COMPUTE_TYPE, count, 3, 5), gain = normal(columns), shift = normal(columns),
                     dy = normal(count);
        const Tensor residual = normal(count), y = poisoned(COMPUTE_TYPE, count),
                     statistics = poisoned(COMPUTE_TYPE, 2 * rows);
        BOTH_OP(norm_forward, with_kernel(k[d]), x.at[d], gain.at[d], shift.at[d], y.at[d], statistics.at[d]);
        assert_close_and_release(y, 1e-5, "norm forward", rows, columns);
        for (int with = 0; with < 2; with++) {
            const Tensor dx = poisoned(COMPUTE_TYPE, count);
            BOTH_OP(norm_backward_input, with_kernel(k[d]), x.at[d], statistics.at[d], gain.at[d], dy.at[d],
                    with ? residual.at[d] : NULL, dx.at[d]);
            assert_close_and_release(dx, 1e-4, "norm dx", rows, columns);
        }
        const Tensor dgain = normal(columns), dshift = normal(columns);
        BOTH_OP(norm_backward_weight, with_kernel(k[d]), x.at[d], statistics.at[d], dy.at[d], dgain.at[d],
                dshift.at[d]);
        assert_close_and_release(dgain, 1e-5, "norm dgain", rows, columns);
        assert_close_and_release(dshift, 1e-5, "norm dshift", rows, columns);
        release(x), release(gain), release(shift), release(dy), release(residual), release(statistics);
    }
}

TEST(test_gelu)
{
    static const size_t shapes[][2] = {{1, 1}, {3, 7}, {64, 384}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = columns}, k);
        for (float deviation = 0.01f; deviation < 200; deviation *= 10) {
            const Tensor x = filled(COMPUTE_TYPE, count, deviation, 0), y = poisoned(COMPUTE_TYPE, count),
                         dx = poisoned(COMPUTE_TYPE, count), in_place = normal(count);
            Tensor dy = in_place;
            BOTH_OP(gelu_forward, with_kernel(k[d]), x.at[d], y.at[d]);
            BOTH_OP(gelu_backward, with_kernel(k[d]), x.at[d], dy.at[d], dx.at[d]);
            BOTH_OP(gelu_backward, with_kernel(k[d]), x.at[d], dy.at[d], dy.at[d]);
            assert_memory_equal(dx.at[CPU], in_place.at[CPU], count * sizeof(float));
            /* the bound is relative to x, because y is almost 0 for negative x */
            assert_within(y, 1e-5 * (double)deviation, "gelu forward", rows, columns);
            assert_within(dx, 1e-5, "gelu dx", rows, columns);
            release(x), release(y), release(dx), release(in_place);
        }
    }
}

TEST(test_attention)
{
    static const struct {
        size_t samples, sequence, heads, width;
    } shapes[] = {{1, 1, 1, 1}, {2, 5, 3, 4}, {1, 64, 4, 24}, {2, 128, 2, 16}, {1, 129, 1, 8}, {1, 300, 2, 13}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t columns = shapes[s].heads * shapes[s].width, rows = shapes[s].samples * shapes[s].sequence;
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_ATTENTION,
                                  .rows = rows,
                                  .columns = columns,
                                  .sequence = shapes[s].sequence,
                                  .heads = shapes[s].heads},
                    k);
        const Tensor qkv = normal(3 * rows * columns), y = poisoned(COMPUTE_TYPE, rows * columns),
                     dy = normal(rows * columns);
        const Tensor dqkv = poisoned(COMPUTE_TYPE, 3 * rows * columns);
        const Tensor context[DEVICES] = {poisoned(COMPUTE_TYPE, k[CPU]->context),
                                         poisoned(COMPUTE_TYPE, k[ORACLE]->context)};
        BOTH_OP(attention_forward, with_kernel(k[d]), qkv.at[d], y.at[d], context[d].at[d]);
        assert_close(y, 1e-5, "attention forward", shapes[s].sequence, columns);
        BOTH_OP(attention_backward, with_kernel(k[d]), qkv.at[d], y.at[d], context[d].at[d], dy.at[d], dqkv.at[d]);
        assert_close_and_release(dqkv, 1e-5, "attention dqkv", shapes[s].sequence, columns);
        release(qkv), release(y), release(dy), release(context[CPU]), release(context[ORACLE]);
    }
}

/* A token's result does not depend on later tokens of its sequence, or on other sequences: not in one bit. */
TEST(test_attention_is_causal)
{
    enum { SEQUENCE = 150, COLUMNS = 16, ROWS = 2 * SEQUENCE, CHANGED = 131 };
    const Kernel *k[DEVICES];
    kernels_for(
        (KernelShape){.kind = KERNEL_ATTENTION, .rows = ROWS, .columns = COLUMNS, .sequence = SEQUENCE, .heads = 2}, k);
    const Tensor qkv = normal(3 * ROWS * COLUMNS), before = poisoned(COMPUTE_TYPE, ROWS * COLUMNS),
                 after = poisoned(COMPUTE_TYPE, ROWS * COLUMNS);
    const Tensor context[DEVICES] = {poisoned(COMPUTE_TYPE, k[CPU]->context),
                                     poisoned(COMPUTE_TYPE, k[ORACLE]->context)};
    BOTH_OP(attention_forward, with_kernel(k[d]), qkv.at[d], before.at[d], context[d].at[d]);
    for (size_t i = 3 * COLUMNS * CHANGED; i < 3 * COLUMNS * SEQUENCE; i++) {
        ((float *)qkv.at[CPU])[i] += 1000;
        ((double *)qkv.at[ORACLE])[i] += 1000;
    }
    BOTH_OP(attention_forward, with_kernel(k[d]), qkv.at[d], after.at[d], context[d].at[d]);
    for (int d = 0; d < DEVICES; d++) {
        const size_t size = devices[d]->run->size[COMPUTE_TYPE], rest = SEQUENCE * COLUMNS * size;
        assert_memory_equal(before.at[d], after.at[d], CHANGED * COLUMNS * size);
        assert_memory_not_equal(before.at[d], after.at[d], rest);
        assert_memory_equal((char *)before.at[d] + rest, (char *)after.at[d] + rest, rest);
    }
    release(qkv), release(before), release(after), release(context[CPU]), release(context[ORACLE]);
}

TEST(test_embedding)
{
    enum { SEQUENCE = 7, ROWS = 3 * SEQUENCE, COLUMNS = 19, VOCABULARY = 11 };
    int32_t tokens[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        tokens[i] = (int32_t)(random_bits(5, i) % VOCABULARY);
    const Tensor by_token = normal(VOCABULARY * COLUMNS), by_position = normal(SEQUENCE * COLUMNS);
    const Tensor y = poisoned(COMPUTE_TYPE, ROWS * COLUMNS), dy = normal(ROWS * COLUMNS);
    BOTH_OP(embedding_forward, with_table(ROWS, COLUMNS, SEQUENCE), tokens, by_token.at[d], by_position.at[d], y.at[d]);
    assert_close_and_release(y, 1e-6, "embedding", ROWS, COLUMNS);
    BOTH_OP(embedding_backward, with_table(ROWS, COLUMNS, SEQUENCE), tokens, dy.at[d], by_token.at[d],
            by_position.at[d]);
    assert_close_and_release(by_token, 1e-6, "embedding dtokens", ROWS, COLUMNS);
    assert_close_and_release(by_position, 1e-6, "embedding dpositions", ROWS, COLUMNS);
    release(dy);
}

TEST(test_cross_entropy)
{
    static const size_t shapes[][2] = {{1, 2}, {5, 7}, {33, 256}, {2, 1001}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        /* up to logits for which most probabilities are 0 */
        for (float deviation = 0.1f; deviation < 20000; deviation *= 100) {
            const size_t rows = shapes[s][0], columns = shapes[s][1];
            const Kernel *k[DEVICES];
            kernels_for((KernelShape){.kind = KERNEL_CROSS_ENTROPY, .rows = rows, .columns = columns}, k);
            int32_t targets[64];
            for (size_t i = 0; i < rows; i++)
                targets[i] = (int32_t)(random_bits(6, i) % columns);
            const Tensor logits = filled(COMPUTE_TYPE, rows * columns, deviation, deviation);
            double loss[DEVICES] = {NAN, NAN};
            BOTH_OP(cross_entropy, with_scale(k[d], 0.05), targets, logits.at[d], &loss[d]);
            assert_true(fabs(loss[CPU] - loss[ORACLE]) <= 1e-6 * fmax(1, loss[ORACLE]));
            assert_within(logits, 1e-6 * 0.05 / (double)rows, "cross-entropy", rows, columns);
            release(logits);
        }
}

TEST(test_squared_error)
{
    enum { COUNT = 1003 };
    float targets[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        targets[i] = random_normal(9, i);
    const Tensor y = normal(COUNT), dy = poisoned(COMPUTE_TYPE, COUNT);
    double loss[DEVICES] = {NAN, NAN};
    BOTH_OP(squared_error, with_count_and_scale(COUNT, 0.25), y.at[d], targets, dy.at[d], &loss[d]);
    assert_true(fabs(loss[CPU] - loss[ORACLE]) <= 1e-6 * loss[ORACLE]);
    assert_close_and_release(dy, 1e-6, "squared error", COUNT, 1);
    release(y);
}

TEST(test_memory)
{
    static const size_t counts[] = {0, 1, 7, 8, 1000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const size_t count = counts[c];
        const Tensor x = normal(count), copied = poisoned(COMPUTE_TYPE, count), seven = poisoned(COMPUTE_TYPE, count),
                     sum = normal(count);
        BOTH_OP(copy, with_count(count * devices[d]->run->size[COMPUTE_TYPE]), x.at[d], copied.at[d]);
        assert_memory_equal(x.at[CPU], copied.at[CPU], count * sizeof(float));
        assert_close_and_release(copied, 1e-7, "copy", count, 1);
        BOTH(fill(device, COMPUTE_TYPE, count, 7, seven.at[d], &error));
        assert_close_and_release(seven, 1e-7, "fill", count, 1);
        BOTH(accumulate(device, count, x.at[d], sum.at[d], &error));
        assert_close_and_release(sum, 1e-6, "accumulate", count, 1);
        double squares[DEVICES] = {NAN, NAN};
        BOTH(sum_of_squares(device, count, x.at[d], &squares[d], &error));
        assert_true(fabs(squares[CPU] - squares[ORACLE]) <= 1e-12 * squares[ORACLE]);
        float *stored[DEVICES];
        for (int d = 0; d < DEVICES; d++)
            stored[d] = calloc(count + 1, sizeof **stored);
        BOTH(store_floats(device, COMPUTE_TYPE, count, x.at[d], stored[d], &error));
        assert_memory_equal(stored[CPU], x.at[CPU], count * sizeof(float));
        assert_memory_equal(stored[CPU], stored[ORACLE], count * sizeof(float));
        free(stored[CPU]), free(stored[ORACLE]);
        release(x);
    }
    for (int d = 0; d < DEVICES; d++) {
        unsigned char *memory;
        OK(devices[d]->run->allocate(devices[d], 1000, (void **)&memory, &error));
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < 1000; i++)
            assert_int_equal(memory[i], 0);
        devices[d]->run->deallocate(devices[d], memory);
        devices[d]->run->deallocate(devices[d], NULL);
        void *too_much = NULL;
        Error error = {""};
        assert_int_equal(devices[d]->run->allocate(devices[d], SIZE_MAX - 1, &too_much, &error), STATUS_RUN_FAILED);
        assert_non_null(strstr(error.text, "no memory for"));
    }
}

/* Compares three updates of one weight with the formulas of Loshchilov & Hutter, 2019, algorithm 2. */
TEST(test_adamw)
{
    AdamW settings = {.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .decay = 0.5, .clip = 0.5};
    static const double gradients[3] = {2, -4, 1};
    double parameter = 3, moment1 = 0, moment2 = 0;
    const Tensor p = filled(COMPUTE_TYPE, 1, 0, 3), m = filled(COMPUTE_TYPE, 1, 0, 0),
                 v = filled(COMPUTE_TYPE, 1, 0, 0);
    for (settings.step = 1; settings.step <= 3; settings.step++) {
        const double gradient = gradients[settings.step - 1] * 0.5;
        moment1 = 0.9 * moment1 + 0.1 * gradient;
        moment2 = 0.99 * moment2 + 0.01 * gradient * gradient;
        const double mean = moment1 / (1 - pow(0.9, (double)settings.step));
        const double deviation = sqrt(moment2 / (1 - pow(0.99, (double)settings.step)));
        parameter = parameter - 0.1 * 0.5 * parameter - 0.1 * mean / (deviation + 1e-8);
        const Tensor g = filled(COMPUTE_TYPE, 1, 0, (float)gradients[settings.step - 1]);
        BOTH(adamw(device, &settings, 1, p.at[d], g.at[d], m.at[d], v.at[d], NULL, &error));
        assert_true(fabs(*(double *)p.at[ORACLE] - parameter) < 1e-12);
        assert_true(fabs((double)*(float *)p.at[CPU] - parameter) < 1e-6);
        assert_true(*(double *)g.at[ORACLE] == 0 && *(float *)g.at[CPU] == 0);
        release(g);
    }
    release(p), release(m), release(v);
}

TEST(test_adamw_of_many)
{
    enum { COUNT = 1003 };
    const AdamW settings = {
        .rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 0.3, .step = 5};
    const Tensor p = normal(COUNT), g = normal(COUNT), m = normal(COUNT), v = filled(COMPUTE_TYPE, COUNT, 0.1f, 1);
    BOTH(adamw(device, &settings, COUNT, p.at[d], g.at[d], m.at[d], v.at[d], NULL, &error));
    assert_close_and_release(p, 1e-6, "adamw parameters", COUNT, 1);
    assert_close_and_release(m, 1e-6, "adamw moment", COUNT, 1);
    assert_close_and_release(v, 1e-6, "adamw second moment", COUNT, 1);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(((float *)g.at[CPU])[i] == 0 && ((double *)g.at[ORACLE])[i] == 0);
    release(g);
}

TEST(test_product_clock)
{
    for (int d = 0; d < DEVICES; d++) {
        const KernelShape shape = {.kind = KERNEL_LINEAR, .rows = 8, .columns = 16, .outputs = 4};
        const Kernel *kernel, *again;
        OK(device_kernel(devices[d], &shape, &kernel, &error));
        OK(device_kernel(devices[d], &shape, &again, &error));
        assert_ptr_equal(kernel, again);
        const Tensor x = normal(8 * 16), w = normal(16 * 4), y = poisoned(COMPUTE_TYPE, 8 * 4);
        devices[d]->products = (ProductClock){.on = true};
        OK(RUN_OP(devices[d], &error, linear_forward, with_kernel(kernel), x.at[d], w.at[d], NULL, NULL, y.at[d]));
        devices[d]->products.on = false;
        OK(RUN_OP(devices[d], &error, linear_forward, with_kernel(kernel), x.at[d], w.at[d], NULL, NULL, y.at[d]));
        assert_int_equal(devices[d]->products.calls, 1);
        assert_true(devices[d]->products.operations == 2 * 8 * 16 * 4);
        assert_true(devices[d]->products.nanoseconds > 0);
        release(x), release(w), release(y);
    }
}

/* One list runs with different bases. If a needed operand has no memory, the message names the operation. An operation
   whose only result is optional (IF_WANTED) is left out if that result has no memory. */
TEST(test_lists)
{
    for (int d = 0; d < DEVICES; d++) {
        const size_t size = devices[d]->run->size[COMPUTE_TYPE];
        Error refusal = {""};
        const Tensor x = normal(8), y = poisoned(COMPUTE_TYPE, 8);
        float wanted[8], first[2];
        OpList list = {0};
        op_append(&list, &(Op){.kind = OPERATION_copy, .count = 8 * size, .copy = {{1, 0}, {2, 0}}});
        op_append(&list, &(Op){.kind = OPERATION_to_floats, .count = 2, .to_floats = {{2, 3 * size}, {3, 0}}});
        assert_false(list.failed);
        OK(op_run(devices[d], &list, 0, 2, (void *[]){x.at[d], y.at[d], NULL}, &error));
        OK(op_run(devices[d], &list, 0, 2, (void *[]){x.at[d], y.at[d], first}, &error));
        OK(devices[d]->run->store_floats(devices[d], COMPUTE_TYPE, 8, x.at[d], wanted, &error));
        assert_memory_equal(first, wanted + 3, sizeof first);
        assert_int_equal(op_run(devices[d], &list, 0, 2, (void *[]){NULL, y.at[d], NULL}, &refusal), STATUS_RUN_FAILED);
        assert_string_equal(refusal.text, "internal error, operation copy: its operand source has no memory");
        op_list_free(&list);
        release(x), release(y);
    }
}

TEST(test_open_names)
{
    Device *device = (Device *)1;
    Error error = {""};
    assert_int_equal(device_open("gpu", 0, &device, &error), STATUS_BAD_USAGE);
    assert_null(device);
    assert_string_equal(error.text, "no device 'gpu'; there are: cpu, cuda, cuda-fp32");
    device_close(NULL);
}

int main(void) { return test_program("operations", open_cpu_and_oracle, close_pair); }
