/* A fused launch gives the bits of its operations run one after another, for 1, 3 and 5 blocks. The host detects tables
   that lack a tile or have a cycle. */

#include "runtime/cuda/fused.h"
#include "runtime/model/random.h"
#include "tests/gpu/emulation.h"
#include "tests/gpu/fused_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of the test: the second half of a transformer block, forward for one microbatch and backward for another. */
enum { ROWS = 136, HIDDEN = 24, WIDE = 136, HEADS = 2, SEQUENCE = 68, TOKENS = 40, HEAD = 64 };
enum {
    NORM,
    UP,
    DOWN,
    DWIDE,
    DX,
    DNORM,
    DW_DOWN,
    DW_UP,
    DGAIN,
    ATTEND,
    DELTA,
    DATTEND,
    SEND,
    EMBED,
    DEMBED,
    LOSS,
    LOSS_SUM,
    SQUARES,
    FLOATS,
    COMPUTE_TYPE,
    QKV,
    ATTEND_WIDE,
    OPERATIONS
};
enum { ARENA = 1 << 21, SHARED_BYTES = 99 << 10 };

/* The memory of all operands. The run operation by operation and the fused run each have one, with the same layout. */
typedef struct Memory {
    char *at;
    size_t used, element_size; /* bytes */
} Memory;

static void *take(Memory *memory, size_t count, size_t size, bool random)
{
    char *place = memory->at + memory->used;
    for (size_t i = 0; i < count; i++) {
        const float value = random ? random_normal(memory->used, i) : NAN;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits >>= 8 * (4 - size); /* a bfloat16 is the upper half of a float */
        memcpy(place + i * size, &bits, size);
    }
    memory->used += (count * size + 63) / 64 * 64;
    assert_true(memory->used <= ARENA);
    return place;
}

static void *elements(Memory *memory, size_t count, bool random)
{
    return take(memory, count, memory->element_size, random);
}

static float *floats(Memory *memory, size_t count, bool random) { return take(memory, count, sizeof(float), random); }

/* Adds the operations before and after a model's blocks: embedding and losses. */
static void lay_out_ends(Memory *m, Operation *o)
{
    void *table = elements(m, TOKENS * HIDDEN, true), *positions = elements(m, SEQUENCE * HIDDEN, true);
    void *y = elements(m, ROWS * HIDDEN, false), *dy = elements(m, ROWS * HIDDEN, true),
         *dx = elements(m, ROWS * HIDDEN, false);
    float *dtable = floats(m, TOKENS * HIDDEN, true), *dpositions = floats(m, SEQUENCE * HIDDEN, true);
    float *rows = floats(m, ROWS * HIDDEN, true), *as_floats = floats(m, ROWS * TOKENS, false);
    void *logits = elements(m, ROWS * TOKENS, true), *as_elements = elements(m, ROWS * HIDDEN, false);
    double *row_losses = (double *)(void *)floats(m, 2 * ROWS, false), *loss = (double *)(void *)floats(m, 2, false);
    double *partial = (double *)(void *)floats(m, 2, false);
    int *tokens = (int *)(void *)floats(m, ROWS, false);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = i * i % TOKENS;
    const Embedding embedding = {.tokens = tokens,
                                 .token_table = table,
                                 .position_table = positions,
                                 .dy = dy,
                                 .y = y,
                                 .dtoken_table = dtable,
                                 .dposition_table = dpositions,
                                 .rows = ROWS,
                                 .columns = HIDDEN,
                                 .sequence = SEQUENCE};
    o[EMBED] = (Operation){.kind = CUDA_embedding_forward, .of.embedding = embedding};
    o[DEMBED] = (Operation){.kind = CUDA_embedding_backward, .of.embedding = embedding};
    o[LOSS] = (Operation){.kind = CUDA_cross_entropy,
                          .of.cross_entropy = {.logits = logits,
                                               .targets = tokens,
                                               .row_losses = row_losses,
                                               .scale = 0.5f,
                                               .rows = ROWS,
                                               .columns = TOKENS}};
    o[LOSS_SUM] = (Operation){.kind = CUDA_finish_sum,
                              .after_count = 1,
                              .after = {LOSS},
                              .of.sum = {.partial = row_losses, .result = loss, .scale = 1.0 / ROWS, .count = ROWS}};
    o[SQUARES] =
        (Operation){.kind = CUDA_squared_error,
                    .of.squared_error = {
                        .y = dy, .targets = rows, .dy = dx, .partial = partial, .scale = 0.5f, .count = ROWS * HIDDEN}};
    o[FLOATS] = (Operation){.kind = CUDA_to_float,
                            .after_count = 1,
                            .after = {LOSS},
                            .of.elementwise = {.from = logits, .to = as_floats, .count = ROWS * TOKENS}};
    o[COMPUTE_TYPE] = (Operation){.kind = CUDA_from_float,
                                  .of.elementwise = {.from = rows, .to = as_elements, .count = ROWS * HIDDEN}};
}

/* Adds an attention whose heads are wide enough for TMA and wgmma. */
static void lay_out_wide_attention(Memory *m, Operation *o)
{
    float *values = floats(m, 3 * ROWS * HEADS * HEAD, true);
    Attention attention = {.qkv = elements(m, 3 * ROWS * HEADS * HEAD, false),
                           .y = elements(m, ROWS * HEADS * HEAD, false),
                           .logsumexp = floats(m, ROWS * HEADS, false),
                           .rows = ROWS,
                           .columns = HEADS * HEAD,
                           .sequence = ROWS,
                           .heads = HEADS};
    o[QKV] = (Operation){
        .kind = CUDA_from_float,
        .of.elementwise = {.from = values, .to = (void *)(uintptr_t)attention.qkv, .count = 3 * ROWS * HEADS * HEAD}};
    attention_fit(&attention, (unsigned)m->element_size, 0, SHARED_BYTES - FUSED_HEAD);
    o[ATTEND_WIDE] =
        (Operation){.kind = CUDA_attention_forward, .after_count = 1, .after = {QKV}, .of.attention = attention};
}

static Memory lay_out(Operation *o, size_t element_size)
{
    Memory m = {NULL, 0, element_size};
    assert_int_equal(posix_memalign((void **)&m.at, 64, ARENA), 0);
    memset(m.at, 0, ARENA);
    void *x = elements(&m, ROWS * HIDDEN, true), *gain = elements(&m, HIDDEN, true),
         *shift = elements(&m, HIDDEN, true);
    void *up = elements(&m, HIDDEN * WIDE, true), *down = elements(&m, WIDE * HIDDEN, true),
         *bias = elements(&m, WIDE, true);
    void *normed = elements(&m, ROWS * HIDDEN, false), *wide = elements(&m, ROWS * WIDE, false);
    void *active = elements(&m, ROWS * WIDE, false), *y = elements(&m, ROWS * HIDDEN, false);
    void *old_x = elements(&m, ROWS * HIDDEN, true), *old_normed = elements(&m, ROWS * HIDDEN, true);
    void *old_wide = elements(&m, ROWS * WIDE, true), *old_active = elements(&m, ROWS * WIDE, true);
    void *dy = elements(&m, ROWS * HIDDEN, true), *dwide = elements(&m, ROWS * WIDE, false);
    void *dnormed = elements(&m, ROWS * HIDDEN, false), *dx = elements(&m, ROWS * HIDDEN, false);
    void *qkv = elements(&m, 3 * ROWS * HIDDEN, true), *mixed = elements(&m, ROWS * HIDDEN, false);
    void *dqkv = elements(&m, 3 * ROWS * HIDDEN, false), *sent = elements(&m, ROWS * HIDDEN, false);
    float *statistics = floats(&m, 2 * ROWS, false), *old_statistics = floats(&m, 2 * ROWS, true);
    float *dup = floats(&m, HIDDEN * WIDE, true), *ddown = floats(&m, WIDE * HIDDEN, true),
          *dbias = floats(&m, WIDE, true);
    float *dgain = floats(&m, HIDDEN, true), *dshift = floats(&m, HIDDEN, true);
    float *logsumexp = floats(&m, ROWS * HEADS, false), *delta = floats(&m, ROWS * HEADS, false);

    const Norm norm = {
        .x = x, .gain = gain, .shift = shift, .y = normed, .statistics = statistics, .rows = ROWS, .columns = HIDDEN};
    const Norm old_norm = {.x = old_x,
                           .gain = gain,
                           .dy = dnormed,
                           .residual = dy,
                           .dx = dx,
                           .statistics = old_statistics,
                           .dgain = dgain,
                           .dshift = dshift,
                           .rows = ROWS,
                           .columns = HIDDEN};
    Attention attention = {.qkv = qkv,
                           .y = mixed,
                           .dy = dy,
                           .dqkv = dqkv,
                           .logsumexp = logsumexp,
                           .delta = delta,
                           .rows = ROWS,
                           .columns = HIDDEN,
                           .sequence = SEQUENCE,
                           .heads = HEADS};
    o[NORM] = (Operation){.kind = CUDA_norm_forward, .of.norm = norm};
    o[DWIDE] = (Operation){
        .kind = CUDA_product_input,
        .of.product = {.a = dy, .b = down, .c = dwide, .gelu_input = old_wide, .m = ROWS, .n = WIDE, .k = HIDDEN}};
    o[UP] = (Operation){
        .kind = CUDA_product_forward,
        .after_count = 1,
        .after = {NORM},
        .of.product = {
            .a = normed, .b = up, .c = wide, .bias = bias, .gelu = active, .m = ROWS, .n = WIDE, .k = HIDDEN}};
    o[DX] = (Operation){.kind = CUDA_product_input,
                        .after_count = 1,
                        .after = {DWIDE},
                        .of.product = {.a = dwide, .b = up, .c = dnormed, .m = ROWS, .n = HIDDEN, .k = WIDE}};
    o[DOWN] =
        (Operation){.kind = CUDA_product_forward,
                    .after_count = 1,
                    .after = {UP},
                    .of.product = {.a = active, .b = down, .c = y, .residual = x, .m = ROWS, .n = HIDDEN, .k = WIDE}};
    o[DNORM] = (Operation){.kind = CUDA_norm_backward_input, .after_count = 1, .after = {DX}, .of.norm = old_norm};
    o[SEND] = (Operation){.kind = CUDA_copy_bytes,
                          .after_count = 1,
                          .after = {DNORM},
                          .of.copy = {dx, sent, ROWS * HIDDEN * element_size}};
    o[DW_DOWN] = (Operation){.kind = CUDA_product_weight,
                             .of.product = {.a = old_active, .b = dy, .c = ddown, .m = WIDE, .n = HIDDEN, .k = ROWS}};
    o[DW_UP] = (Operation){
        .kind = CUDA_product_weight,
        .after_count = 1,
        .after = {DWIDE},
        .of.product = {.a = old_normed, .b = dwide, .c = dup, .column_sums = dbias, .m = HIDDEN, .n = WIDE, .k = ROWS}};
    o[DGAIN] = (Operation){.kind = CUDA_norm_backward_weight, .after_count = 1, .after = {DX}, .of.norm = old_norm};
    attention_fit(&attention, (unsigned)element_size, 1, SHARED_BYTES - FUSED_HEAD);
    o[ATTEND] = (Operation){.kind = CUDA_attention_forward, .of.attention = attention};
    o[DELTA] =
        (Operation){.kind = CUDA_attention_delta, .after_count = 1, .after = {ATTEND}, .of.attention = attention};
    o[DATTEND] = (Operation){
        .kind = CUDA_attention_backward, .after_count = 2, .after = {DELTA, ATTEND}, .of.attention = attention};
    lay_out_ends(&m, o);
    lay_out_wide_attention(&m, o);
    return m;
}

/* Replaces the kernels by those for Hopper: products use TMA and wgmma, and the attention with wide heads uses TMA. The
   product DX keeps its kernel, as if its rows did not fit TMA. */
static void use_hopper(Operation *operations)
{
    Operation *wide = &operations[ATTEND_WIDE];
    const Attention attention = wide->of.attention;
    const TensorMapShape qkv = attention_map_shape(&attention, 3, 0);
    assert_true(hopper_attention_takes(&attention) && !hopper_attention_takes(&operations[ATTEND].of.attention));
    wide->kind = CUDA_hopper_attention_forward;
    wide->of.hopper_attention.attention = attention;
    emulated_tensor_map(&wide->of.hopper_attention.qkv, attention.qkv, &qkv);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        static const KernelNumber kinds[] = {CUDA_hopper_forward, CUDA_hopper_input, CUDA_hopper_weight};
        Operation *o = &operations[i];
        const ProductLayout layout = (ProductLayout)o->kind; /* of products */
        const Product p = o->of.product;
        if (o->kind > CUDA_product_weight || i == DX)
            continue;
        assert_true(hopper_takes(layout, &p));
        const TensorMapShape a = tensor_map_shape(layout, &p, 0), b = tensor_map_shape(layout, &p, 1);
        o->kind = kinds[layout];
        o->of.hopper.product = p;
        o->of.hopper.columns = HOPPER_NARROW_N; /* of the operation alone; in the fused launch tiles are wide */
        o->of.hopper.band = hopper_band(&p, HOPPER_TILE_N, 2, 1);
        emulated_tensor_map(&o->of.hopper.a, p.a, &a);
        emulated_tensor_map(&o->of.hopper.b, p.b, &b);
    }
}

static void run_apart(const Operation *o, unsigned element_size)
{
#define NAME(file, name, parameters) [CUDA_##name] = #name,
    static const char *const names[] = {KERNELS(NAME)};
    char name[64];
    const bool hopper = o->kind >= CUDA_hopper_forward;
    const bool plain = hopper || o->kind == CUDA_copy_bytes || o->kind == CUDA_finish_sum;
    snprintf(name, sizeof name, "%s%s", names[o->kind], plain ? "" : element_size == 2 ? "_bf16" : "_f32");
    const Launch tiles = {operation_tiles(o, element_size), TILE_THREADS,
                          fused_launch(1, element_size, SHARED_BYTES).shared, 1};
    const Launch launch = o->kind == CUDA_hopper_attention_forward
                              ? hopper_attention_launch(&o->of.hopper_attention.attention, 2, 0)
                          : hopper ? hopper_launch(&o->of.hopper, 2, 1)
                                   : tiles;
    const char *problem = emulate(name, &o->of, launch);
    if (problem)
        fail_msg("%s: %s", name, problem);
}

static FusedShapes shapes;
static FusedPlan plan;

static Status make_table(Operation *operations, unsigned element_size, unsigned blocks, Fused *table, Error *error)
{
    TRY(fused_shapes(operations, OPERATIONS, element_size, blocks, &shapes, error));
    fused_plan(&shapes, &plan);
    *table = fused_table(&plan, operations, plan.runs);
    return STATUS_OK;
}

static void assert_same_bits(const char *kernel, unsigned element_size, bool hopper)
{
    Operation operations[OPERATIONS];
    Error error = {.text = ""};
    const Memory apart = lay_out(operations, element_size);
    if (hopper)
        use_hopper(operations);
    for (unsigned i = 0; i < OPERATIONS; i++)
        run_apart(&operations[i], element_size);
    unsigned counters[2][1 + OPERATIONS] = {{0}}; /* each launch clears the counters of the next one */
    memset(counters[1], 0xff, sizeof counters[1]);
    for (unsigned blocks = 1; blocks <= 5; blocks += 2) {
        const unsigned set = blocks / 2 % 2;
        const Memory together = lay_out(operations, element_size);
        Fused table;
        if (hopper)
            use_hopper(operations);
        assert_int_equal(make_table(operations, element_size, blocks, &table, &error), STATUS_OK);
        assert_int_equal(fused_check(&table, OPERATIONS, &error), STATUS_OK);
        table.drawn = counters[set], table.done = counters[set] + 1;
        table.cleared = counters[1 - set], table.cleared_count = 1 + OPERATIONS;
        const char *problem = emulate_together(
            kernel, &table, hopper ? fused_hopper_launch(blocks) : fused_launch(blocks, element_size, SHARED_BYTES));
        if (problem)
            fail_msg("%u blocks: %s", blocks, problem);
        assert_int_equal(apart.used, together.used);
        assert_memory_equal(apart.at, together.at, together.used);
        for (unsigned i = 0; i < OPERATIONS; i++)
            assert_int_equal(table.done[i], operations[i].tiles);
        free(together.at);
    }
    free(apart.at);
}

static void test_same_bits(void **state)
{
    (void)state;
    assert_same_bits("fused_f32", 4, false);
}

static void test_same_bits_hopper(void **state)
{
    (void)state;
    assert_same_bits("fused_hopper", 2, true);
}

static void assert_wrong(const Fused *table, const char *words)
{
    Error error = {.text = ""};
    assert_int_equal(fused_check(table, OPERATIONS, &error), STATUS_BAD_INPUT);
    if (!strstr(error.text, words))
        fail_msg("%s", error.text);
}

static void test_wrong_tables(void **state)
{
    (void)state;
    Operation operations[OPERATIONS];
    Error error = {.text = ""};
    const Memory memory = lay_out(operations, 4);
    Fused table;
    assert_int_equal(make_table(operations, 4, 2, &table, &error), STATUS_OK);
    const FusedPlan kept = plan;
    char words[64];

    plan.runs[0].first_tile = operations[plan.runs[0].operation].tiles;
    assert_wrong(&table, "does not exist");
    plan = kept;
    plan.runs[1].ticket++;
    assert_wrong(&table, "tiles from ticket");
    plan = kept;
    table.tickets++;
    snprintf(words, sizeof words, "%u tickets for %u tiles", table.tickets, table.tickets - 1);
    assert_wrong(&table, words);
    table.tickets--;

    operations[NORM].after_count = 1, operations[NORM].after[0] = DOWN; /* a cycle */
    assert_wrong(&table, "the launch stops before run 0: operation 0 waits for what never ends");
    assert_int_equal(make_table(operations, 4, 2, &table, &error), STATUS_RUN_FAILED);
    assert_string_equal(
        error.text,
        "internal error, operation 0 of a fused GPU launch waits for operation 2, which does not come before it");
    free(memory.at);
}

/* A table with a cycle, which the check refuses, does hang when it is launched. */
static void test_cycle_hangs(void **state)
{
    (void)state;
    Operation operations[OPERATIONS];
    Error error = {.text = ""};
    const Memory memory = lay_out(operations, 4);
    Fused table;
    unsigned drawn = 0, done[OPERATIONS] = {0};
    assert_int_equal(make_table(operations, 4, 2, &table, &error), STATUS_OK);
    table.drawn = &drawn, table.done = done;
    operations[NORM].after_count = 1, operations[NORM].after[0] = DOWN;
    const char *problem = emulate_together("fused_f32", &table, fused_launch(2, 4, SHARED_BYTES));
    assert_non_null(problem);
    assert_non_null(strstr(problem, "waits for ever at"));
    free(memory.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_hopper),
        cmocka_unit_test(test_wrong_tables),
        cmocka_unit_test(test_cycle_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
