/* Random orders with random delays, run with ranks as threads: no run hangs. Two runs on the CPU give the same bits,
   and so do a run on one GPU and a run with NCCL. The numbers of the GPU are close to those of the CPU. */

#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/runs.h"

#include <dlfcn.h>
#include <time.h>

static _Atomic uint64_t delays;

/* Delays a pass by up to a millisecond, with a probability of 1/4. */
static void delay(void)
{
    uint64_t state = atomic_fetch_add(&delays, 1) * 0x9e3779b97f4a7c15u;
    if (order_random(&state, 4) == 0)
        nanosleep(&(struct timespec){.tv_nsec = order_random(&state, 1000000)}, NULL);
}

static Status late_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    delay();
    return stage_forward(stage, buffers, error);
}

static Status late_backward_input(Stage *stage, const PassBuffers *buffers, Error *error)
{
    delay();
    return stage_backward_input(stage, buffers, error);
}

static Status late_backward_weight(Stage *stage, const PassBuffers *buffers, Error *error)
{
    delay();
    return stage_backward_weight(stage, buffers, error);
}

static const Passes late_passes = {
    .forward = late_forward, .backward_input = late_backward_input, .backward_weight = late_backward_weight};

static void same_bits(const Outcome *got, const Outcome *expected, uint64_t seed)
{
    if (memcmp(got->losses, expected->losses, sizeof got->losses) != 0 ||
        memcmp(got->norms, expected->norms, sizeof got->norms) != 0)
        fail_msg("order %llu: other numbers", (unsigned long long)seed);
}

static void test_orders(void **state)
{
    (void)state;
    FakeNcclBegin *fake_begin;
    FakeNcclReportFunction *fake_report;
    char source[256], path[256], command[2048];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    assert_non_null(library);
    *(void **)&fake_begin = dlsym(library, "fake_nccl_begin");
    *(void **)&fake_report = dlsym(library, "fake_nccl_report");
    snprintf(source, sizeof source, "%s/tests/cuda/order.csv", build);
    snprintf(path, sizeof path, "%s/tests/cuda/order.bin", build);
    snprintf(command, sizeof command, "%s/dpc %s -o %s >%s.log 2>&1 || { cat %s.log >&2; false; }", build, source, path,
             path, path);
    run_passes = &late_passes;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        const int ranks = 2 + (int)(seed % 3);
        write_order(source, seed, (unsigned)ranks);
        assert_int_equal(system(command), 0);
        const Outcome cpu = run_well(path, "cpu", "gpt", "--transport=local");
        const Outcome again = run_well(path, "cpu", "gpt", "--transport=local");
        same_bits(&again, &cpu, seed);
        mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = seed});
        const Outcome one_gpu = run_well(path, "cuda-fp32", "gpt", seed % 2 ? "--in-turn" : "--transport=local");
        assert_clean();
        assert_close(&one_gpu, &cpu, (Bounds){1e-12, 1e-5}, source);
        fake_begin(&(FakeNccl){.silent_rank = -1});
        mock_begin(
            &(MockSetting){.order = seed % 4 == 0 ? MOCK_EARLY : MOCK_RANDOM, .seed = seed + 100, .devices = ranks});
        const Outcome nccl = run_well(path, "cuda-fp32", "gpt", "--transport=nccl");
        assert_clean();
        same_bits(&nccl, &one_gpu, seed);
        const FakeNcclReport report = fake_report();
        assert_int_equal(report.communicators + report.late_connections + report.mismatches + report.early_uses +
                             report.early_ends,
                         0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
