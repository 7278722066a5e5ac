#pragma once

/* Compares the operations of the models gpt and mlp on a device with the oracle's: on random data, with outputs that
   are NaN before the call unless the operation adds to them, with shapes that do not divide into tiles and shapes of
   many tiles. Two programs run this: one on the mock runtime, one on a GPU. */

#include "runtime/cuda/cuda.h"
#include "tests/device/pair.h"
#include "tests/device/wrong.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

typedef struct OperationsRun {
    const char *device;
    /* bound of |x - y| / |y|: x is an output of the device, y that of the oracle, |.| the norm of the whole output */
    double bound;
    bool large; /* also tests shapes for which the oracle takes seconds */
    bool fused; /* CALL_OP runs operations by fused launches, if the device has them */
    bool says;  /* prints each call before it is made, to find calls that hang */
} OperationsRun;

static OperationsRun how;
static unsigned wrong; /* number of wrong outputs of a test */

static void say_call(const Device *device, const char *call)
{
    if (how.says && device == devices[TESTED])
        printf("[ CALL     ] %.*s\n", (int)strcspn(call, "("), call);
}

/* Runs a list of one operation, whose bases are its operands. */
static Status run_listed(Device *device, OpKind kind, Op op, const OpMemory *memory, Error *failure)
{
    OpList list = {0};
    op.kind = kind;
    for (uint32_t i = 0; i < OPERATION_OPERANDS; i++)
        op.operands[i].base = op_info[kind].operands[i].effect && memory->operands[i] ? i + 1 : 0;
    op_append(&list, &op);
    BoundList *bound;
    Status status = op_list_finish(&list, failure);
    if (status == STATUS_OK)
        status = device->run->fusion->prepare(device, &list, 0, 0, failure);
    if (status == STATUS_OK)
        status = device->run->fusion->bind(device, &list, memory->operands, &bound, failure);
    if (status == STATUS_OK)
        status = device->run->fusion->run(bound, failure);
    op_list_free(&list);
    return status;
}

/* CALL calls a function, and CALL_OP runs an operation, on both devices: the tested one and the oracle.
   OperationsRun.fused applies to CALL_OP only. */
#define CALL(...)                       \
    for (int d = 0; d < DEVICES; d++) { \
        Device *device = devices[d];    \
        say_call(device, #__VA_ARGS__); \
        OK(device->run->__VA_ARGS__);   \
    }
#define CALL_OP(name, shape, ...)                                                                             \
    for (int d = 0; d < DEVICES; d++) {                                                                       \
        Device *const device_ = devices[d];                                                                   \
        const OpMemory memory_ = {.name = {__VA_ARGS__}};                                                     \
        say_call(device_, #name);                                                                             \
        OK(how.fused && device_->run->fusion ? run_listed(device_, OPERATION_##name, shape, &memory_, &error) \
                                             : run_op(device_, OPERATION_##name, shape, &memory_, &error));   \
    }

static Tensor small(size_t count) { return filled(COMPUTE_TYPE, count, 0.1f, 0); }
static Tensor sums(size_t count) { return filled(MASTER_TYPE, count, 1, 0); }

/* Writes the first numbers of a wrong output, and what was expected, to a file in the folder $WRONG. */
static void keep_wrong(const char *what, double *const values[DEVICES], size_t rows, size_t columns)
{
    char path[4096];
    const char *folder = getenv("WRONG");
    snprintf(path, sizeof path, "%s/%s of %s, %zu x %zu%s", folder, what, devices[TESTED]->run->name, rows, columns,
             how.fused ? ", fused" : "");
    FILE *file = folder ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fputs("row column is should_be\n", file);
    for (size_t i = 0; i < rows * columns && i < 4096; i++)
        fprintf(file, "%zu %zu %.9g %.9g\n", i / columns, i % columns, values[TESTED][i], values[ORACLE][i]);
    fclose(file);
}

/* Reports wrong results and continues: a GPU may be available for minutes only. */
static void compare(Tensor tensor, const char *what, size_t rows, size_t columns)
{
    double *values[DEVICES], difference = 0, size = 0;
    assert_int_equal(rows * columns, tensor.count);
    float *stored = malloc(tensor.count * sizeof *stored + 1);
    for (int d = 0; d < DEVICES; d++) {
        Error error = {""};
        if (devices[d]->run->store_floats(devices[d], tensor.kind, tensor.count, tensor.at[d], stored, &error) !=
            STATUS_OK)
            fail_msg("%s of %s, %zu x %zu: %s", what, devices[d]->run->name, rows, columns, error.text);
        values[d] = malloc(tensor.count * sizeof **values + 1);
        for (size_t i = 0; i < tensor.count; i++)
            values[d][i] = (double)stored[i];
    }
    for (size_t i = 0; i < tensor.count; i++) {
        const double off = values[TESTED][i] - values[ORACLE][i];
        difference += off * off;
        size += values[ORACLE][i] * values[ORACLE][i];
    }
    /* written so that it is true for NaN; FLT_MIN allows that smaller numbers become 0 */
    if (!(sqrt(difference) <= how.bound * sqrt(size) + (double)FLT_MIN)) {
        char text[500];
        describe_wrong(values[TESTED], values[ORACLE], rows, columns, 4 * how.bound * sqrt(size / (double)tensor.count),
                       text, sizeof text);
        print_error("%s of %s, %zu x %zu: off by %g of %g; %s\n", what, devices[TESTED]->run->name, rows, columns,
                    sqrt(difference), sqrt(size), text);
        keep_wrong(what, values, rows, columns);
        wrong++;
    }
    free(stored), free(values[TESTED]), free(values[ORACLE]);
}

static void compare_and_release(Tensor tensor, const char *what, size_t rows, size_t columns)
{
    compare(tensor, what, rows, columns);
    release(tensor);
}

/* A block of memory on each of both devices, for data or a loss. Both blocks have the same bytes at first. */
typedef struct Block {
    void *at[DEVICES];
    size_t bytes;
} Block;

static Block block_of(size_t bytes, const void *values)
{
    Block block = {.bytes = bytes};
    CALL(allocate(device, bytes, &block.at[d], &error));
    CALL(upload(device, bytes, values, block.at[d], &error));
    return block;
}

static void release_block(Block block)
{
    for (int d = 0; d < DEVICES; d++)
        devices[d]->run->deallocate(devices[d], block.at[d]);
}

static void compare_losses(Block block, const char *what)
{
    double loss[DEVICES];
    CALL(download(device, sizeof(double), block.at[d], &loss[d], &error));
    if (!(fabs(loss[TESTED] - loss[ORACLE]) <= how.bound * fabs(loss[ORACLE]))) {
        print_error("%s of %s is %.9g, should be %.9g\n", what, devices[TESTED]->run->name, loss[TESTED], loss[ORACLE]);
        wrong++;
    }
    release_block(block);
}

static void test_linear(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},       {3, 5, 7},   {33, 17, 65},    {64, 96, 384},
                                       {130, 128, 128}, {7, 300, 2}, {192, 320, 264}, {512, 1024, 768}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes - (how.large ? 0 : 1); s++) {
        const size_t rows = shapes[s][0], columns = shapes[s][1], outputs = shapes[s][2];
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_LINEAR, .rows = rows, .columns = columns, .outputs = outputs}, k);
        const Tensor x = normal(rows * columns), w = small(columns * outputs), bias = normal(outputs);
        const Tensor residual = normal(rows * outputs), dy = normal(rows * outputs);
        for (int with = 0; with < 4; with++) {
            const Tensor y = poisoned(COMPUTE_TYPE, rows * outputs);
            CALL_OP(linear_forward, with_kernel(k[d]), x.at[d], w.at[d], with & 1 ? bias.at[d] : NULL,
                    with & 2 ? residual.at[d] : NULL, y.at[d]);
            compare_and_release(y, "linear forward", rows, outputs);
        }
        const Kernel *gelu_out[DEVICES], *gelu_in[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = outputs}, gelu_out);
        kernels_for((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = columns}, gelu_in);
        for (int with = 0; with < 2; with++) {
            const Tensor y = poisoned(COMPUTE_TYPE, rows * outputs), active = poisoned(COMPUTE_TYPE, rows * outputs);
            CALL_OP(linear_gelu_forward, with_gelu(k[d], gelu_out[d]), x.at[d], w.at[d], with ? bias.at[d] : NULL,
                    y.at[d], active.at[d]);
            compare_and_release(y, "linear before GELU", rows, outputs);
            compare_and_release(active, "GELU of linear", rows, outputs);
        }
        const Tensor dbefore = poisoned(COMPUTE_TYPE, rows * columns);
        CALL_OP(linear_gelu_backward_input, with_gelu(k[d], gelu_in[d]), dy.at[d], w.at[d], x.at[d], dbefore.at[d]);
        compare_and_release(dbefore, "linear dx before GELU", rows, columns);
        const Tensor dx = poisoned(COMPUTE_TYPE, rows * columns), dw = sums(columns * outputs), dbias = sums(outputs);
        CALL_OP(linear_backward_input, with_kernel(k[d]), dy.at[d], w.at[d], dx.at[d]);
        compare_and_release(dx, "linear dx", rows, columns);
        CALL_OP(linear_backward_weight, with_kernel(k[d]), x.at[d], dy.at[d], dw.at[d], dbias.at[d]);
        CALL_OP(linear_backward_weight, with_kernel(k[d]), x.at[d], dy.at[d], dw.at[d], NULL);
        compare_and_release(dw, "linear dw", columns, outputs);
        compare_and_release(dbias, "linear dbias", 1, outputs);
        release(x), release(w), release(bias), release(residual), release(dy);
    }
}

static void test_norm(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{1, 3}, {5, 7}, {3, 16}, {64, 96}, {9, 1000}, {70, 4096}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_NORM, .rows = rows, .columns = columns}, k);
        const Tensor x = filled(COMPUTE_TYPE, count, 3, 1), gain = normal(columns), shift = normal(columns),
                     dy = normal(count);
        const Tensor residual = normal(count), y = poisoned(COMPUTE_TYPE, count);
        void *statistics[DEVICES];
        CALL(allocate(device, k[d]->context * device->run->size[COMPUTE_TYPE], &statistics[d], &error));
        CALL_OP(norm_forward, with_kernel(k[d]), x.at[d], gain.at[d], shift.at[d], y.at[d], statistics[d]);
        compare_and_release(y, "norm forward", rows, columns);
        for (int with = 0; with < 2; with++) {
            const Tensor dx = poisoned(COMPUTE_TYPE, count);
            CALL_OP(norm_backward_input, with_kernel(k[d]), x.at[d], statistics[d], gain.at[d], dy.at[d],
                    with ? residual.at[d] : NULL, dx.at[d]);
            compare_and_release(dx, "norm dx", rows, columns);
        }
        const Tensor dgain = sums(columns), dshift = sums(columns);
        CALL_OP(norm_backward_weight, with_kernel(k[d]), x.at[d], statistics[d], dy.at[d], dgain.at[d], dshift.at[d]);
        compare_and_release(dgain, "norm dgain", 1, columns);
        compare_and_release(dshift, "norm dshift", 1, columns);
        for (int d = 0; d < DEVICES; d++)
            devices[d]->run->deallocate(devices[d], statistics[d]);
        release(x), release(gain), release(shift), release(dy), release(residual);
    }
}

static void test_gelu(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{1, 1}, {3, 7}, {64, 384}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (float deviation = 0.1f; deviation < 20; deviation *= 10) {
            const size_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
            const Kernel *k[DEVICES];
            kernels_for((KernelShape){.kind = KERNEL_GELU, .rows = rows, .columns = columns}, k);
            const Tensor x = filled(COMPUTE_TYPE, count, deviation, deviation), y = poisoned(COMPUTE_TYPE, count),
                         dy = normal(count);
            const Tensor dx = poisoned(COMPUTE_TYPE, count);
            CALL_OP(gelu_forward, with_kernel(k[d]), x.at[d], y.at[d]);
            CALL_OP(gelu_backward, with_kernel(k[d]), x.at[d], dy.at[d], dx.at[d]);
            CALL_OP(gelu_backward, with_kernel(k[d]), x.at[d], dy.at[d], dy.at[d]);
            compare_and_release(y, "gelu forward", rows, columns);
            compare_and_release(dx, "gelu dx", rows, columns);
            compare_and_release(dy, "gelu dx in place", rows, columns);
            release(x);
        }
}

static void test_attention(void **state)
{
    (void)state;
    static const struct {
        size_t samples, sequence, heads, width;
    } shapes[] = {{1, 1, 1, 1},   {2, 5, 3, 4},    {1, 64, 4, 24},  {2, 128, 2, 16},
                  {1, 129, 1, 8}, {1, 300, 2, 13}, {1, 256, 2, 128}};
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
        void *context[DEVICES];
        CALL(allocate(device, k[d]->context * device->run->size[COMPUTE_TYPE], &context[d], &error));
        CALL_OP(attention_forward, with_kernel(k[d]), qkv.at[d], y.at[d], context[d]);
        compare(y, "attention forward", rows, columns);
        CALL_OP(attention_backward, with_kernel(k[d]), qkv.at[d], y.at[d], context[d], dy.at[d], dqkv.at[d]);
        compare_and_release(dqkv, "attention dqkv", rows, 3 * columns);
        for (int d = 0; d < DEVICES; d++)
            devices[d]->run->deallocate(devices[d], context[d]);
        release(qkv), release(y), release(dy);
    }
}

static void test_embedding(void **state)
{
    (void)state;
    enum { SEQUENCE = 7, ROWS = 3 * SEQUENCE, COLUMNS = 19, VOCABULARY = 11 };
    int32_t values[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        values[i] = (int32_t)(random_bits(5, i) % VOCABULARY);
    const Block tokens = block_of(sizeof values, values);
    const Tensor by_token = normal(VOCABULARY * COLUMNS), by_position = normal(SEQUENCE * COLUMNS);
    const Tensor y = poisoned(COMPUTE_TYPE, ROWS * COLUMNS), dy = normal(ROWS * COLUMNS);
    const Tensor dtoken = sums(VOCABULARY * COLUMNS), dposition = sums(SEQUENCE * COLUMNS);
    CALL_OP(embedding_forward, with_table(ROWS, COLUMNS, SEQUENCE), tokens.at[d], by_token.at[d], by_position.at[d],
            y.at[d]);
    compare_and_release(y, "embedding", ROWS, COLUMNS);
    CALL_OP(embedding_backward, with_table(ROWS, COLUMNS, SEQUENCE), tokens.at[d], dy.at[d], dtoken.at[d],
            dposition.at[d]);
    compare_and_release(dtoken, "embedding dtokens", VOCABULARY, COLUMNS);
    compare_and_release(dposition, "embedding dpositions", SEQUENCE, COLUMNS);
    release(by_token), release(by_position), release(dy);
    release_block(tokens);
}

static void test_losses(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{1, 2}, {5, 7}, {33, 256}, {2, 1001}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_CROSS_ENTROPY, .rows = rows, .columns = columns}, k);
        int32_t tokens[64];
        for (size_t i = 0; i < rows; i++)
            tokens[i] = (int32_t)(random_bits(6, i) % columns);
        const Block targets = block_of(rows * sizeof *tokens, tokens), loss = block_of(sizeof(double), &(double){NAN});
        const Tensor logits = normal(count);
        CALL_OP(cross_entropy, with_scale(k[d], 0.25), targets.at[d], logits.at[d], loss.at[d]);
        compare_losses(loss, "cross-entropy");
        compare_and_release(logits, "cross-entropy gradient", rows, columns);
        release_block(targets);
    }
    enum { COUNT = 40003 };
    float *rows = malloc(COUNT * sizeof *rows);
    for (size_t i = 0; i < COUNT; i++)
        rows[i] = random_normal(9, i);
    const Block targets = block_of(COUNT * sizeof *rows, rows), loss = block_of(sizeof(double), &(double){NAN});
    const Tensor y = normal(COUNT), dy = poisoned(COMPUTE_TYPE, COUNT), copied = poisoned(COMPUTE_TYPE, COUNT);
    const Block floats = block_of(COUNT * sizeof *rows, rows);
    CALL_OP(squared_error, with_count_and_scale(COUNT, 0.25), y.at[d], targets.at[d], dy.at[d], loss.at[d]);
    compare_losses(loss, "squared error");
    compare_and_release(dy, "squared error gradient", COUNT, 1);
    CALL_OP(from_floats, with_count(COUNT), targets.at[d], copied.at[d]);
    compare_and_release(copied, "from floats", COUNT, 1);
    CALL_OP(to_floats, with_count(COUNT), y.at[d], floats.at[d]);
    float *back = malloc(2 * COUNT * sizeof *back);
    CALL(download(device, COUNT * sizeof *back, floats.at[d], back + d * COUNT, &error));
    assert_memory_equal(back, back + COUNT, COUNT * sizeof *back);
    free(back), free(rows), release(y), release_block(targets), release_block(floats);
}

static void test_sums(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 7, 1000, 100003};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const size_t count = counts[c];
        const Tensor x = sums(count), sum = sums(count), elements = poisoned(COMPUTE_TYPE, count),
                     master = poisoned(MASTER_TYPE, count);
        CALL(accumulate(device, count, x.at[d], sum.at[d], &error));
        compare(sum, "accumulate", count, 1);
        CALL_OP(copy, with_count(count * devices[d]->run->size[MASTER_TYPE]), sum.at[d], x.at[d]);
        compare(x, "copy", count, 1);
        CALL(fill(device, COMPUTE_TYPE, count, 0.5, elements.at[d], &error));
        CALL(fill(device, MASTER_TYPE, count, 0.1, master.at[d], &error));
        compare_and_release(elements, "fill", count, 1);
        compare_and_release(master, "fill master", count, 1);
        const Block square = block_of(sizeof(double), &(double){NAN});
        CALL(sum_of_squares(device, count, x.at[d], square.at[d], &error));
        compare_losses(square, "sum of squares");
        release(x), release(sum);
    }
}

static void test_adamw(void **state)
{
    (void)state;
    enum { COUNT = 20003 };
    AdamW settings = {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .clip = 0.3};
    const Tensor w = sums(COUNT), g = sums(COUNT), m = filled(MASTER_TYPE, COUNT, 0, 0),
                 v = filled(MASTER_TYPE, COUNT, 0, 0);
    const Tensor elements = poisoned(COMPUTE_TYPE, COUNT);
    const bool apart = devices[TESTED]->run->size[COMPUTE_TYPE] != devices[TESTED]->run->size[MASTER_TYPE];
    for (settings.step = 1; settings.step <= 3; settings.step++) {
        CALL(accumulate(device, COUNT, w.at[d], g.at[d], &error));
        CALL(adamw(device, &settings, COUNT, w.at[d], g.at[d], m.at[d], v.at[d],
                   apart && d == TESTED ? elements.at[d] : NULL, &error));
    }
    CALL_OP(copy, with_count((apart && d == TESTED) ? 0 : COUNT * devices[d]->run->size[MASTER_TYPE]), w.at[d],
            elements.at[d]);
    compare_and_release(elements, "adamw elements", COUNT, 1);
    compare_and_release(w, "adamw weights", COUNT, 1);
    compare_and_release(m, "adamw moment", COUNT, 1);
    compare_and_release(v, "adamw second moment", COUNT, 1);
    compare_and_release(g, "adamw gradients", COUNT, 1); /* zero */
}

#define TESTS(X) X(linear) X(norm) X(gelu) X(attention) X(embedding) X(losses) X(sums) X(adamw)
#define WHOLE_TEST(name)                             \
    static void all_of_##name(void **state)          \
    {                                                \
        wrong = 0;                                   \
        test_##name(state);                          \
        if (wrong > 0)                               \
            fail_msg("%u outputs are wrong", wrong); \
    }
TESTS(WHOLE_TEST)
#define UNIT_TEST(name) cmocka_unit_test(all_of_##name),

/* Runs all tests of operations. Returns how many failed; 1 if a device cannot be opened. */
static int run_operations(OperationsRun run)
{
    Error error = {""};
    how = run;
    if (device_open(run.device, 0, &devices[TESTED], &error) != STATUS_OK ||
        device_open("oracle", 0, &devices[ORACLE], &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const struct CMUnitTest operations[] = {TESTS(UNIT_TEST)};
    const int failed = cmocka_run_group_tests_name(run.device, operations, NULL, NULL);
    device_close(devices[TESTED]);
    device_close(devices[ORACLE]);
    return failed;
}
