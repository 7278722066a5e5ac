/* The emulation of the GPU finds the errors that it is meant to find. */

#include "tests/gpu/emulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

static _Alignas(16) char from[64], to[64];
static const Copy parameters = {from, to, sizeof from};

static void assert_found_in(const char *kernel, const Copy *copy, unsigned threads, unsigned shared, const char *words)
{
    const Launch launch = {1, threads, shared, 1};
    const char *problem = emulate(kernel, copy, launch);
    if (!problem || !strstr(problem, words))
        fail_msg("%s: %s", kernel, problem ? problem : "nothing found");
    assert_null(emulate("copy_bytes", &parameters, copy_launch(sizeof from))); /* the next kernel still runs */
}

static void assert_found(const char *kernel, unsigned threads, unsigned shared, const char *words)
{
    assert_found_in(kernel, &parameters, threads, shared, words);
}

static void test_faults(void **state)
{
    (void)state;
    assert_found("faulty_barrier", TILE_THREADS, 0, "waits for ever at a barrier; 1 of 256 threads have ended");
    assert_found("faulty_warp", 32, 0, "is at shfl.xor where lane 3 of its warp is at shfl");
    assert_found("faulty_copy", 32, 512, "ends while asynchronous copies are under way");
    assert_found("faulty_address", 32, 512, "an address that is not a multiple of 16");
    assert_found("faulty_registers", 384, 0, "waits for ever at more registers than others give up");
    assert_found("faulty_products", 128, 4096, "multiplies with no fence behind what it did to its registers");
    assert_found("no_such_kernel", 32, 0, "no kernel of that name");
}

/* Faults that are found only in builds that report every memory access. */
static void test_accesses(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#else
    assert_found("faulty_race", 64, 256, "with no barrier between");
    assert_found("faulty_bounds", 32, 128, "touches byte 131 of 128 bytes of shared memory");
    static TensorMap map, maps[2];
    const Copy with_map = {&map, to, sizeof to}, beside = {maps->bytes + 64, to, sizeof to};
    const TensorMapShape shape = {.sizes = {32, 1}, .pitch = 64, .box = {64, 8}};
    emulated_tensor_map(&map, from, &shape);
    memcpy(maps->bytes + 64, &map, sizeof map);
    assert_found_in("faulty_fence", &beside, 32, 2048, "by a map that is not at one of 128");
    assert_found_in("faulty_map", &with_map, 32, 2048, "a map in global memory that its block has not acquired");
    assert_found_in("faulty_fence", &with_map, 32, 2048, "to where thread 0 wrote, with no fence between");
    assert_found_in("faulty_count", &with_map, 32, 2048, "after it waited for others' counts, with no fence between");
    assert_found("faulty_operand", 128, 16384, "multiplies what thread");
    assert_found_in("faulty_wait", &with_map, 32, 2048, "touches byte 0 of shared memory, where a box is to come");
#endif
}

static void assert_cluster(const char *kernel, const char *words)
{
    static TensorMap map;
    const TensorMapShape shape = {.sizes = {32, 1}, .pitch = 64, .box = {64, 8}};
    const Copy with_map = {&map, to, sizeof to};
    const Launch launch = {2, 128, 36864, 2};
    emulated_tensor_map(&map, from, &shape);
    const char *problem = emulate(kernel, &with_map, launch);
    if (words ? !problem || !strstr(problem, words) : problem != NULL)
        fail_msg("%s: %s", kernel, problem ? problem : "nothing found");
}

static void test_clusters(void **state)
{
    (void)state;
    assert_cluster("faulty_not", NULL);
    assert_cluster("faulty_begin", "uses arrivals of block 1 with no barrier of their cluster since");
    assert_cluster("faulty_arrival", "waits for ever at arrivals");
    assert_cluster("faulty_end", "reaches for the shared memory of block 0, which has ended");
    assert_cluster("faulty_early", "ends its block, where others of the cluster arrive and nobody has waited for it");
    assert_cluster("faulty_slot", "shared memory held, where a box is to come");
    const Launch half = {3, 128, 36864, 2};
    assert_string_equal(emulate("faulty_not", &parameters, half), "a grid that is not made of whole clusters");
}

static void test_bank_conflicts(void **state)
{
    (void)state;
    const Launch launch = {1, 32, 4096, 1};
    emulated_bank_conflicts();
    assert_null(emulate("faulty_banks", &parameters, launch));
    assert_int_equal(emulated_bank_conflicts(), 4 * 7);
}

/* Small integers, whose products and sums are exact. */
static void test_group_products(void **state)
{
    (void)state;
    enum { ROWS = 64, DEPTH = 16, COLUMNS = 128 };
    static _Alignas(16) uint16_t operands[ROWS * DEPTH + DEPTH * COLUMNS];
    static _Alignas(16) float sums[2 * ROWS * COLUMNS + ROWS * 64];
    float values[sizeof operands / sizeof *operands];
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        values[i] = (float)((int)(i * i * 7 % 31) - 15);
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        operands[i] = (uint16_t)(bits >> 16);
    }
    const Copy both = {operands, sums, sizeof sums};
    const Launch launch = {1, 128, 32768, 1};
    const char *problem = emulate("group_fragments", &both, launch);
    if (problem)
        fail_msg("%s", problem);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        const size_t which = i / (ROWS * COLUMNS), at = i % (ROWS * COLUMNS), columns = which < 2 ? COLUMNS : 64;
        float expected = which > 0;
        for (size_t k = 0; k < DEPTH; k++)
            expected += values[at / columns * DEPTH + k] * values[ROWS * DEPTH + k * COLUMNS + at % columns];
        if (sums[i] != expected)
            fail_msg("product %zu, row %zu, column %zu: %g, should be %g", which, at / columns, at % columns,
                     (double)sums[i], (double)expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),         cmocka_unit_test(test_accesses),       cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_bank_conflicts), cmocka_unit_test(test_group_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
