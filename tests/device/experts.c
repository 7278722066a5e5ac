/* The operations of layers with experts, on the CPU device compared with the oracle: routing, its ties and edge cases,
   permuting, products of each expert's rows, SwiGLU. Some of the oracle's results are compared with results computed by
   hand; its gradients with central differences in tests/model/gradients.c. */

#include "runtime/device/group.h"
#include "tests/device/pair.h"

#include <string.h>

enum { CPU = TESTED };

static void assert_near(Tensor tensor, const char *what)
{
    double largest = 1e-2; /* at least this, because some results are 0 except for rounding */
    for (size_t i = 0; i < tensor.count; i++)
        largest = fmax(largest, fabs(((double *)tensor.at[ORACLE])[i]));
    for (size_t i = 0; i < tensor.count; i++) {
        const double got = (double)((float *)tensor.at[CPU])[i], expected = ((double *)tensor.at[ORACLE])[i];
        if (!(fabs(got - expected) <= 1e-5 * largest))
            fail_msg("%s: element %zu is %.9g, should be %.9g", what, i, got, expected);
    }
}

static void assert_near_and_release(Tensor tensor, const char *what)
{
    assert_near(tensor, what);
    release(tensor);
}

/* Integers that both devices have computed. */
typedef struct Numbers {
    size_t count;
    int32_t *at[DEVICES];
} Numbers;

static Numbers numbers(size_t count)
{
    Numbers made = {.count = count};
    for (int d = 0; d < DEVICES; d++) {
        made.at[d] = malloc(count * sizeof(int32_t) + 1);
        assert_non_null(made.at[d]);
        memset(made.at[d], 0xa5, count * sizeof(int32_t));
    }
    return made;
}

static void assert_same(Numbers got, const char *what)
{
    for (size_t i = 0; i < got.count; i++)
        if (got.at[CPU][i] != got.at[ORACLE][i])
            fail_msg("%s: number %zu is %d, should be %d", what, i, got.at[CPU][i], got.at[ORACLE][i]);
}

static void release_numbers(Numbers made) { free(made.at[CPU]), free(made.at[ORACLE]); }

static KernelShape router_of(size_t rows, size_t sequence, Routing routing)
{
    return (KernelShape){.kind = KERNEL_ROUTER, .rows = rows, .sequence = sequence, .routing = routing};
}

static const Routing routings[] = {
    {.experts = 1, .chosen = 1, .groups = 1, .best_groups = 1, .factor = 1},
    {.experts = 16, .chosen = 3, .groups = 1, .best_groups = 1, .factor = 1},
    {.experts = 16, .chosen = 4, .groups = 4, .best_groups = 2, .factor = 2.5},
    {.experts = 16, .chosen = 4, .groups = 4, .best_groups = 4, .factor = 2.5},
    {.experts = 8, .chosen = 8, .groups = 1, .best_groups = 1, .factor = 1}, /* every expert */
    {.experts = 8, .chosen = 2, .groups = 8, .best_groups = 3, .factor = 1}, /* one expert per group */
    {.experts = 8, .chosen = 2, .groups = 1, .best_groups = 1, .softmax = true, .factor = 1},
    {.experts = 64, .chosen = 8, .groups = 8, .best_groups = 4, .softmax = true, .factor = 16},
};

static void check_router(Routing routing, size_t rows, size_t sequence)
{
    const size_t routed = rows * routing.chosen;
    const Kernel *k[DEVICES];
    kernels_for(router_of(rows, sequence, routing), k);
    const Tensor logits = normal(rows * routing.experts), bias = filled(COMPUTE_TYPE, routing.experts, 0.1f, 0);
    const Tensor gates = poisoned(COMPUTE_TYPE, routed), balance = poisoned(COMPUTE_TYPE, 1), dgates = normal(routed);
    const Tensor dlogits = poisoned(COMPUTE_TYPE, rows * routing.experts);
    const Tensor loads = normal(routing.experts), total = filled(COMPUTE_TYPE, 1, 0, 1);
    const Numbers chosen = numbers(routed), places = numbers(routed), begins = numbers(routing.experts + 1);
    BOTH_OP(route, with_scale(k[d], 0.5), logits.at[d], bias.at[d], chosen.at[d], gates.at[d], balance.at[d]);
    assert_same(chosen, "chosen");
    assert_near_and_release(gates, "gates");
    assert_near(balance, "balance loss");
    BOTH_OP(route_backward, with_scale(k[d], 0.5), logits.at[d], chosen.at[d], dgates.at[d], dlogits.at[d]);
    assert_near_and_release(dlogits, "dlogits");
    BOTH_OP(group_rows, with_kernel(k[d]), chosen.at[d], places.at[d], begins.at[d]);
    assert_same(places, "places");
    assert_same(begins, "begins");
    assert_int_equal(begins.at[CPU][routing.experts], routed);
    BOTH_OP(count_loads, with_kernel(k[d]), begins.at[d], balance.at[d], loads.at[d], total.at[d]);
    assert_near_and_release(loads, "loads");
    assert_near_and_release(total, "sum of balance losses");
    release(logits), release(bias), release(balance), release(dgates);
    release_numbers(chosen), release_numbers(places), release_numbers(begins);
}

TEST(routers_agree)
{
    for (size_t r = 0; r < sizeof routings / sizeof *routings; r++) {
        check_router(routings[r], 1, 1); /* one token */
        check_router(routings[r], 12, 4);
        check_router(routings[r], 50, 50);
    }
}

/* The experts that a device chooses for one token. */
static void choose(Device *device, Routing routing, const float *logits, const float *bias, int32_t *chosen)
{
    void *elements[4];
    const Kernel *kernel;
    const KernelShape shape = router_of(1, 1, routing);
    const size_t size = device->run->size[COMPUTE_TYPE];
    const float *const values[2] = {logits, bias};
    for (int i = 0; i < 4; i++) {
        OK(device->run->allocate(device, routing.experts * size, &elements[i], &error));
        if (i < 2)
            OK(device->run->load_floats(device, COMPUTE_TYPE, routing.experts, values[i], elements[i], &error));
    }
    OK(device_kernel(device, &shape, &kernel, &error));
    OK(RUN_OP(device, &error, route, with_scale(kernel, 0), elements[0], elements[1], chosen, elements[2],
              elements[3]));
    for (int i = 0; i < 4; i++)
        device->run->deallocate(device, elements[i]);
}

static void expect_choice(Routing routing, const float *logits, const float *bias, int32_t first, int32_t second)
{
    for (int d = 0; d < DEVICES; d++) {
        int32_t chosen[2] = {-1, -1};
        choose(devices[d], routing, logits, bias, chosen);
        assert_int_equal(chosen[0], first);
        assert_int_equal(chosen[1], second);
    }
}

/* Of equal experts or groups the one with the lowest index is chosen. The bias affects the choice. The score of a group
   is the sum of the scores of its two best experts. An expert outside the best groups is not chosen, however good it
   is. */
TEST(choices_are_as_defined)
{
    static const float none[8];
    const Routing plain = {.experts = 8, .chosen = 2, .groups = 1, .best_groups = 1, .factor = 1};
    const Routing grouped = {.experts = 8, .chosen = 2, .groups = 2, .best_groups = 1, .factor = 1};
    for (int softmax = 0; softmax < 2; softmax++) {
        Routing p = plain, g = grouped;
        p.softmax = g.softmax = softmax;
        expect_choice(p, none, none, 0, 1);
        expect_choice(p, (float[8]){0, 1, 0, 2, 0, 2}, none, 3, 5);
        expect_choice(p, (float[8]){0, 1, 0, 2, 0, 2}, (float[8]){[6] = 1}, 6, 3);
        expect_choice(g, none, none, 0, 1);
        expect_choice(g, (float[8]){0, 0, 0, 0, 1, 1}, none, 4, 5);
        /* the best expert is in a group that is not chosen */
        expect_choice(g, (float[8]){0, 0, 0, 2, 1.9f, 1.9f}, none, 4, 5);
        expect_choice(g, (float[8]){0, 0, 0, 0, 1, 1}, (float[8]){1, 1, 1, 1}, 0, 1);
    }
}

/* Gates are the unbiased scores. With equal scores each expert gets an equal part of the factor. If all experts are
   chosen equally often, the balance loss is its weight. */
TEST(gates_and_balance_by_hand)
{
    enum { ROWS = 4, EXPERTS = 4, CHOSEN = 2 };
    const Kernel *k[DEVICES];
    kernels_for(router_of(ROWS, ROWS, (Routing){EXPERTS, CHOSEN, 1, 1, false, 3}), k);
    float logits[ROWS * EXPERTS] = {0}, values[ROWS * EXPERTS];
    for (int t = 0; t < ROWS; t++)
        logits[t * EXPERTS + t] = logits[t * EXPERTS + (t + 1) % EXPERTS] = 1;
    memcpy(values, logits, sizeof values);
    const Tensor l = tensor_of(COMPUTE_TYPE, ROWS * EXPERTS, values), bias = filled(COMPUTE_TYPE, EXPERTS, 0, 0.25f);
    const Tensor gates = poisoned(COMPUTE_TYPE, ROWS * CHOSEN), balance = poisoned(COMPUTE_TYPE, 1);
    const Numbers chosen = numbers(ROWS * CHOSEN);
    BOTH_OP(route, with_scale(k[d], 0.125), l.at[d], bias.at[d], chosen.at[d], gates.at[d], balance.at[d]);
    for (int i = 0; i < ROWS * CHOSEN; i++)
        assert_true(fabs(((double *)gates.at[ORACLE])[i] - 1.5) < 1e-12);
    assert_true(fabs(*(double *)balance.at[ORACLE] - 0.125) < 1e-12);
    assert_near_and_release(gates, "gates");
    assert_near_and_release(balance, "balance");
    release(l), release(bias), release_numbers(chosen);
}

/* How the rows are distributed. EVENLY: at random; TO_ONE: all to the last expert; TO_TWO: to the first and the last
   one. */
typedef enum Spread { EVENLY, TO_ONE, TO_TWO } Spread;

static int32_t expert_of(Spread spread, size_t row, size_t choice, size_t experts)
{
    return (int32_t)(spread == TO_ONE   ? experts - 1
                     : spread == TO_TWO ? choice % 2 * (experts - 1)
                                        : random_bits(3, row * 100 + choice) % experts);
}

/* Checks the operations after the router. The chosen experts are arbitrary; a token may have the same expert twice. */
static void check_experts(size_t rows, size_t columns, size_t outputs, Routing routing, Spread spread)
{
    const size_t routed = rows * routing.chosen;
    const Kernel *r[DEVICES], *p[DEVICES], *g[DEVICES];
    kernels_for(router_of(rows, rows, routing), r);
    kernels_for((KernelShape){.kind = KERNEL_PERMUTE, .rows = rows, .columns = columns, .routing = routing}, p);
    kernels_for(
        (KernelShape){
            .kind = KERNEL_GROUPED, .rows = routed, .columns = columns, .outputs = outputs, .routing = routing},
        g);
    const Numbers chosen = numbers(routed), places = numbers(routed), begins = numbers(routing.experts + 1);
    for (size_t i = 0; i < routed; i++)
        chosen.at[CPU][i] = chosen.at[ORACLE][i] =
            expert_of(spread, i / routing.chosen, i % routing.chosen, routing.experts);
    BOTH_OP(group_rows, with_kernel(r[d]), chosen.at[d], places.at[d], begins.at[d]);
    assert_same(places, "places");
    assert_same(begins, "begins");
    const Tensor x = normal(rows * columns), gates = normal(routed), residual = normal(rows * columns);
    const Tensor sorted = poisoned(COMPUTE_TYPE, routed * columns), dx = poisoned(COMPUTE_TYPE, routed * columns);
    const Tensor w = normal(routing.experts * columns * outputs), y = poisoned(COMPUTE_TYPE, routed * outputs);
    const Tensor dy = normal(routed * outputs), dw = normal(routing.experts * columns * outputs);
    const Tensor dgates = poisoned(COMPUTE_TYPE, routed), dsorted = poisoned(COMPUTE_TYPE, routed * columns);
    BOTH_OP(permute, with_kernel(p[d]), x.at[d], places.at[d], sorted.at[d]);
    assert_near(sorted, "permute");
    BOTH_OP(grouped_forward, with_kernel(g[d]), sorted.at[d], w.at[d], begins.at[d], y.at[d]);
    assert_near_and_release(y, "grouped forward");
    BOTH_OP(grouped_backward_input, with_kernel(g[d]), dy.at[d], w.at[d], begins.at[d], dx.at[d]);
    assert_near_and_release(dx, "grouped dx");
    BOTH_OP(grouped_backward_weight, with_kernel(g[d]), sorted.at[d], dy.at[d], begins.at[d], dw.at[d]);
    assert_near_and_release(dw, "grouped dw");
    for (int with = 0; with < 4; with++) {
        const Tensor out = poisoned(COMPUTE_TYPE, rows * columns);
        BOTH_OP(unpermute, with_kernel(p[d]), sorted.at[d], places.at[d], with & 1 ? gates.at[d] : NULL,
                with & 2 ? residual.at[d] : NULL, out.at[d]);
        assert_near_and_release(out, "unpermute");
    }
    BOTH_OP(unpermute_backward, with_kernel(p[d]), sorted.at[d], places.at[d], gates.at[d], residual.at[d],
            dsorted.at[d], dgates.at[d]);
    assert_near_and_release(dsorted, "unpermute dx");
    assert_near_and_release(dgates, "dgates");
    release(x), release(gates), release(residual), release(sorted), release(w), release(dy);
    release_numbers(chosen), release_numbers(places), release_numbers(begins);
}

TEST(experts_agree)
{
    for (Spread spread = EVENLY; spread <= TO_TWO; spread++) {
        check_experts(1, 3, 5, (Routing){.experts = 4, .chosen = 1}, spread); /* one token, idle experts */
        check_experts(1, 3, 5, (Routing){.experts = 1, .chosen = 1}, spread);
        check_experts(40, 24, 10, (Routing){.experts = 8, .chosen = 3}, spread);
        check_experts(7, 33, 17, (Routing){.experts = 6, .chosen = 6}, spread); /* every expert */
        check_experts(64, 96, 128, (Routing){.experts = 16, .chosen = 3}, spread);
        check_experts(100, 250, 300, (Routing){.experts = 8, .chosen = 3}, spread); /* dx by transposed matrices */
    }
}

TEST(swiglu_agrees)
{
    for (float deviation = 0.1f; deviation < 2000; deviation *= 10) { /* up to inputs whose sigmoids are 0 or 1 */
        enum { ROWS = 9, COLUMNS = 37 };
        const Kernel *k[DEVICES];
        kernels_for((KernelShape){.kind = KERNEL_SWIGLU, .rows = ROWS, .columns = COLUMNS}, k);
        const Tensor x = filled(COMPUTE_TYPE, ROWS * 2 * COLUMNS, deviation, 0), dy = normal(ROWS * COLUMNS);
        const Tensor y = poisoned(COMPUTE_TYPE, ROWS * COLUMNS), dx = poisoned(COMPUTE_TYPE, ROWS * 2 * COLUMNS);
        BOTH_OP(swiglu_forward, with_kernel(k[d]), x.at[d], NULL, y.at[d]);
        assert_near_and_release(y, "SwiGLU");
        BOTH_OP(swiglu_backward, with_kernel(k[d]), x.at[d], dy.at[d], NULL, dx.at[d]);
        assert_near_and_release(dx, "SwiGLU dx");
        release(x), release(dy);
    }
}

TEST(sums_agree)
{
    const Tensor addend = normal(1003), sum = normal(1003);
    BOTH_OP(add, with_count(1003), addend.at[d], sum.at[d]);
    assert_near_and_release(sum, "add");
    release(addend);
}

/* Rows go to the copies of their expert in turn. Member 1 begins with the second copy, if there is one. */
TEST(rows_go_to_copies_in_turn)
{
    enum { EXPERTS = 3, PHYSICAL = 6, ROWS = 8 };
    static const int32_t chosen[ROWS] = {0, 1, 0, 0, 2, 0, 1, 2};
    static const uint32_t placement[PHYSICAL] = {2, 1, 0, 0, 0, 1};
    /* At first physical expert p is expert p % 3: the copies of expert 0 are 0 and 3, those of expert 1 are 1 and 4,
       those of expert 2 are 2 and 5. */
    static const int32_t wanted[2][2][ROWS] = {{{0, 1, 3, 0, 2, 3, 4, 5}, {2, 1, 3, 4, 0, 2, 5, 0}},
                                               {{3, 4, 0, 3, 5, 0, 1, 2}, {3, 5, 4, 2, 0, 3, 1, 0}}};
    static const uint32_t rows[2][PHYSICAL] = {{4, 2, 3, 3, 2, 2}, {4, 2, 2, 4, 2, 2}};
    (void)state;
    for (uint32_t self = 0; self < 2; self++) {
        ExpertCopies *copies = group_make_copies(EXPERTS, PHYSICAL, self);
        assert_non_null(copies);
        for (int moved = 0; moved < 2; moved++) {
            int32_t placed[ROWS];
            if (moved)
                group_place_copies(copies, placement);
            OK(op_run_one(devices[CPU], &(Op){.kind = OPERATION_choose_copies, .copies = copies, .count = ROWS},
                          &(OpMemory){.choose_copies = {chosen, placed}}, &error));
            assert_memory_equal(placed, wanted[self][moved], sizeof placed);
        }
        assert_memory_equal(copies->rows, rows[self], sizeof rows[self]);
        free(copies);
    }
}

int main(void) { return test_program("experts", open_cpu_and_oracle, close_pair); }
