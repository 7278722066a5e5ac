/* The NCCL transport on a fake NCCL: the numbers are close to those of the CPU device, the fake NCCL notices no
   violation, and after each failure the run ends and reports the failed call. Ranks are threads, each with a GPU of the
   mock runtime. */

#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/runs.h"

#include "base/clock.h"

#include <dlfcn.h>

static FakeNcclBegin *fake_begin;
static FakeNcclReportFunction *fake_report;

static int open_fake(void **state)
{
    (void)state;
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (!library)
        fail_msg("%s", dlerror());
    *(void **)&fake_begin = dlsym(library, "fake_nccl_begin");
    *(void **)&fake_report = dlsym(library, "fake_nccl_report");
    return !fake_begin || !fake_report;
}

static void begin(const MockSetting *mock, FakeNccl fake)
{
    fake_begin(&fake);
    mock_begin(mock);
}

static const FakeNccl good = {.silent_rank = -1};

static const struct {
    const char *name, *options;
    int ranks;
} schedules[] = {
    {"1f1b", "--ranks 3 --microbatches 5", 3},
    {"zb-v", "--ranks 2 --microbatches 4", 2},
    {"dualpipe", "--ranks 4 --microbatches 8", 4},
    {"chimera", "--ranks 4 --microbatches 4", 4},
    {"interleaved-1f1b", "--ranks 2 --microbatches 4", 2},
};

static void test_equals_cpu(void **state)
{
    (void)state;
    int most = 0;
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        const char *path = compile(schedules[s].name, schedules[s].options);
        const Outcome cpu = run_well(path, "cpu", "gpt", "--transport=local");
        for (MockOrder order = MOCK_LATE; order <= MOCK_RANDOM; order++) {
            begin(&(MockSetting){.order = order, .seed = s, .devices = schedules[s].ranks}, good);
            const Outcome cuda = run_well(path, "cuda-fp32", "gpt", "--transport=nccl");
            const FakeNcclReport report = fake_report();
            assert_clean();
            assert_close(&cuda, &cpu, (Bounds){1e-12, 1e-5}, schedules[s].name);
            assert_int_equal(report.communicators, 0);
            assert_int_equal(report.late_connections, 0);
            assert_int_equal(report.mismatches, 0);
            assert_int_equal(report.early_uses, 0);
            assert_int_equal(report.early_ends, 0);
            assert_int_equal(report.most_blocks, 1); /* of the mock's 4 multiprocessors */
            assert_true(report.groups > schedules[s].ranks);
            most = report.most_transfers > most ? report.most_transfers : most;
        }
    }
    assert_true(most > 1); /* adjacent posts formed one group */
}

static void test_bf16_and_one_rank(void **state)
{
    (void)state;
    const char *path = compile("dualpipe", "--ranks 4 --microbatches 8");
    begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 9, .devices = 4, .major = 9, .multiprocessors = 132}, good);
    /* "auto" chooses the device that NCCL needs */
    const Outcome cuda = run_well(path, "auto", "gpt", "--transport=nccl");
    assert_clean();
    assert_int_equal(fake_report().most_blocks, 20); /* dualpipe.dps: on 20 of 132 */
    const Outcome cpu = run_well(path, "cpu", "gpt", "--transport=local");
    assert_close(&cuda, &cpu, (Bounds){2e-2, 2e-2}, "bf16");
    path = compile("naive", "--ranks 1 --microbatches 2"); /* a rank alone */
    begin(&(MockSetting){.order = MOCK_LATE}, (FakeNccl){.version = 21499, .silent_rank = -1});
    run_well(path, "cuda-fp32", "gpt", "--transport=nccl");
    assert_clean();
    assert_int_equal(fake_report().transfers, 2);
    assert_int_equal(fake_report().most_blocks, 0); /* this version knows no such field */
}

static void expect_failure(const char *path, const char *words)
{
    const int64_t begun = clock_nanoseconds();
    const Outcome outcome = run(path, "cuda-fp32", "gpt", "--transport=nccl");
    assert_int_equal(outcome.status, STATUS_RUN_FAILED);
    if (!strstr(outcome.error.text, words))
        fail_msg("'%s' is not in: %s", words, outcome.error.text);
    assert_int_equal(mock_report().live, 0);
    assert_int_equal(fake_report().communicators, 0);
    assert_true(clock_nanoseconds() - begun < INT64_C(60) * 1000000000); /* the run does not hang */
}

/* The groups of one rank never start, except greetings: after the deadline all ranks end. */
static void test_deadline(void **state)
{
    (void)state;
    const char *path = compile("1f1b", "--ranks 3 --microbatches 5");
    begin(&(MockSetting){.order = MOCK_LATE, .devices = 3}, (FakeNccl){.silent_rank = 1});
    run_deadline = "2";
    expect_failure(path, "2 s");
    run_deadline = "30";
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int at;
    } cases[] = {
        {"GetUniqueId", 1}, {"CommInitRankConfig", 2},
        {"GroupStart", 1},  {"GroupStart", 9},
        {"GroupEnd", 2},    {"GroupEnd", 12},
        {"Send", 3},        {"Send", 20},
        {"Recv", 1},        {"Recv", 24},
    };
    const char *path = compile("dualpipe", "--ranks 2 --microbatches 4");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        snprintf(name, sizeof name, "nccl%s: internal error (3)", cases[i].call);
        begin(&(MockSetting){.order = MOCK_EARLY, .devices = 2},
              (FakeNccl){.silent_rank = -1, .fails = cases[i].call, .fails_at = cases[i].at});
        expect_failure(path, name);
    }
    static const int asked[] = {1, 5, 40, 200};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        begin(&(MockSetting){.order = MOCK_RANDOM, .devices = 2},
              (FakeNccl){.silent_rank = -1, .asked_fails_at = asked[i]});
        expect_failure(path, "remote process exited");
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const char *path = compile("dualpipe", "--ranks 2 --microbatches 4");
    begin(&(MockSetting){.devices = 1}, good);
    expect_failure(path, "rank 0 and rank 1 are on the same GPU");
    begin(&(MockSetting){.devices = 2}, (FakeNccl){.version = 21300, .silent_rank = -1});
    expect_failure(path, "NCCL 2.13 is too old, 2.14 is needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_cpu), cmocka_unit_test(test_bf16_and_one_rank), cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_failures),   cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
