/* Whole runs of dprun's code on the CUDA device with the mock runtime: the numbers are close to the CPU device's, and
   no two accesses race. A failed CUDA call is reported, unless it only frees, waits or selects the device; after it
   everything is freed. */

#include "tests/cuda/runs.h"

typedef struct Schedule {
    const char *name, *options;
} Schedule;

static const Schedule schedules[] = {
    {"1f1b", "--ranks 3 --microbatches 5"},      {"zb-v", "--ranks 2 --microbatches 4"},
    {"dualpipe", "--ranks 4 --microbatches 8"},  {"dualpipev", "--ranks 2 --microbatches 6"},
    {"chimera", "--ranks 2 --microbatches 4"},   {"naive", "--ranks 2 --microbatches 2"},
    {"pipedream", "--ranks 3 --microbatches 6"}, {"1f1b-rr", ""},
};
/* the index of pipedream, which updates weights within a step */
enum { SCHEDULES = sizeof schedules / sizeof *schedules, ASYNCHRONOUS = 6 };

/* The numbers are close to those of the CPU device in three orders in which the streams progress. */
static void test_equals_cpu(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEDULES; s++) {
        const char *path = compile(schedules[s].name, schedules[s].options);
        for (int model = 0; model < 2; model++) {
            const char *name = model ? "mlp" : "gpt";
            const Outcome cpu = run_well(path, "cpu", name, "--transport=local");
            for (MockOrder order = MOCK_LATE; order <= MOCK_RANDOM; order++) {
                mock_begin(&(MockSetting){.order = order, .seed = (uint64_t)s});
                const Outcome cuda =
                    run_well(path, "cuda-fp32", name, order == MOCK_EARLY ? "--in-turn" : "--transport=local");
                assert_clean();
                assert_close(&cuda, &cpu, (Bounds){s == ASYNCHRONOUS ? 1e-5 : 1e-12, 1e-5}, schedules[s].name);
            }
        }
    }
}

/* An F&B is one launch, and so is a small single pass. The numbers equal those with --in-turn, which has more launches.
   The planned memory includes the tables of the fused launches. */
static void test_fused(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEDULES; s++) {
        const char *path = compile(schedules[s].name, schedules[s].options);
        for (int model = 0; model < 2; model++) {
            mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 5});
            const Outcome together = run_well(path, "cuda-fp32", model ? "mlp" : "gpt", "--transport=local");
            const MockReport fused = mock_report();
            assert_clean();
            mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 6});
            const Outcome in_turn = run_well(path, "cuda-fp32", model ? "mlp" : "gpt", "--in-turn");
            const MockReport apart = mock_report();
            assert_clean();
            assert_close(&together, &in_turn, (Bounds){0, 0}, schedules[s].name);
            assert_int_equal(apart.fused, 0);
            assert_true(fused.fused > 0);
            assert_true((model ? 1 : 2) * fused.launches < apart.launches);
            /* planned memory: the tables on the GPU, and two pointers per instruction on the host */
            const size_t tables = together.gpu_bytes - in_turn.gpu_bytes;
            assert_true(tables > 0);
            assert_int_equal(together.planned_bytes - in_turn.planned_bytes,
                             tables + together.instructions * 2 * sizeof(void *));
        }
    }
}

static int count_lines(const char *path, const char *words, const char *others)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, words) && (!others || strstr(line, others));
    fclose(file);
    return count;
}

/* If the halves of an F&B run one after the other (--in-turn), the trace has the time of each half. If one fused kernel
   computes both, the trace has no times of halves. */
static void test_halves_in_traces(void **state)
{
    (void)state;
    char trace[300];
    const char *path = compile("dualpipe", "--ranks 4 --microbatches 8");
    snprintf(trace, sizeof trace, "%s.trace", path);
    run_trace = trace;
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 7});
        run_well(path, "cuda-fp32", "gpt", in_turn ? "--in-turn" : "--transport=local");
        assert_clean();
        assert_true(count_lines(trace, "&", NULL) > 0);
        assert_int_equal(count_lines(trace, "&", "\"halves\":["), in_turn ? count_lines(trace, "&", NULL) : 0);
    }
    run_trace = NULL;
}

/* There are no GPU kernels for experts: a model with experts is refused before the training, and the GPU is
   released. */
static void test_experts_are_refused(void **state)
{
    (void)state;
    const char *path = compile("1f1b", "--ranks 3 --microbatches 5");
    mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 8});
    const Outcome outcome = run(path, "cuda", "moe", "--transport=local");
    assert_int_equal(outcome.status, STATUS_BAD_USAGE);
    assert_non_null(strstr(outcome.error.text,
                           "device cuda has no kernels for layers with experts: run this model with "
                           "--device cpu"));
    assert_int_equal(mock_report().live, 0);
}

static void test_bf16(void **state)
{
    (void)state;
    for (int major = 8; major <= 9; major++) /* 9: the Hopper kernels */
        for (int model = 0; model < 4; model++) {
            const char *path = model % 2 ? compile("pipedream", "--ranks 3 --microbatches 6")
                                         : compile("dualpipe", "--ranks 4 --microbatches 8");
            mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 3, .major = major});
            const char *name = model % 2 ? "mlp" : "gpt";
            const Outcome cuda = run_well(path, "cuda", name, model < 2 ? "--transport=local" : "--in-turn");
            assert_clean();
            const Outcome cpu = run_well(path, "cpu", name, "--transport=local");
            assert_close(&cuda, &cpu, (Bounds){2e-2, 2e-2}, name);
        }
}

/* The numbers of --reference, which runs the program on one rank, and of --forward-only are close to the CPU device's,
   too. */
static void test_reference_and_forward(void **state)
{
    (void)state;
    const char *path = compile("zb-v", "--ranks 2 --microbatches 4");
    for (int forward = 0; forward < 2; forward++) {
        const char *option = forward ? "--forward-only" : "--reference";
        const Outcome cpu = run_well(path, "cpu", "gpt", option);
        mock_begin(&(MockSetting){.order = MOCK_LATE});
        const Outcome cuda = run_well(path, "cuda-fp32", "gpt", option);
        assert_clean();
        assert_close(&cuda, &cpu, (Bounds){1e-12, 1e-5}, option);
    }
}

/* If the streams do not wait for each other the mock reports races. */
static void test_races_are_seen(void **state)
{
    (void)state;
    const char *path = compile("1f1b", "--ranks 3 --microbatches 5");
    mock_begin(&(MockSetting){.order = MOCK_EARLY, .forget_waits = true});
    run(path, "cuda-fp32", "gpt", "--transport=local");
    assert_true(mock_report().races > 0);
}

static bool only_tidies(const char *call)
{
    static const char *const calls[] = {"Free",         "StreamDestroy", "StreamSynchronize",
                                        "EventDestroy", "LibraryUnload", "SetDevice"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i], call) == 0)
            return true;
    return false;
}

static void test_failing_calls(void **state)
{
    (void)state;
    const char *path = compile("dualpipe", "--ranks 2 --microbatches 4");
    mock_begin(&(MockSetting){.order = MOCK_EARLY});
    run_well(path, "cuda", "mlp", "--transport=local");
    const size_t calls = mock_report().calls;
    assert_true(mock_report().fused > 0);
    /* the first 60 calls differ from each other, so each of them fails in a run; of the later calls only every
       stride-th */
    const size_t stride = 1 + calls / 120;
    for (size_t i = 1; i <= calls; i += i < 60 ? 1 : stride)
        for (int sticky = 0; sticky < 2; sticky++) {
            mock_begin(&(MockSetting){.order = MOCK_EARLY, .fail_at = i, .sticky = sticky, .driver_version = 13000});
            const Outcome outcome = run(path, "cuda", "mlp", "--transport=local");
            const MockReport report = mock_report();
            /* this run made fewer calls, so none failed: how often events are queried depends on the timing of
               threads */
            if (!report.failed)
                continue;
            char name[64];
            if (sticky) /* all later calls fail, so all ranks fail, and the error may name the call of any of them */
                snprintf(name, sizeof name, "cuda");
            else
                snprintf(name, sizeof name, "cu%s%s", strncmp(report.failed, "Tensor", 6) == 0 ? "" : "da",
                         report.failed);
            if (outcome.status == STATUS_OK ? !only_tidies(report.failed) : !strstr(outcome.error.text, name))
                fail_msg("call %zu, %s: status %d, %s", i, name, (int)outcome.status, outcome.error.text);
            assert_int_equal(report.live, 0);
        }
}

/* Without a usable GPU, --device cuda says what is missing, and --device auto uses the CPU. */
static void test_no_gpu(void **state)
{
    (void)state;
    static const struct {
        MockSetting setting;
        const char *words;
    } cases[] = {
        {{.count_error = 100}, "no NVIDIA driver"},
        {{.count_error = CUDA_DRIVER_TOO_OLD, .driver_version = 11040},
         "too old: it is for CUDA 11.4, but this program was built with CUDA 13.0"},
        {{.count_error = 100, .driver_version = 12040}, "no GPU (cudaGetDeviceCount: "},
        {{.devices = -1, .driver_version = 12040}, "shows none"},
        {{.major = 7, .minor = 5}, "has compute capability 7.5; 8.0"},
    };
    const char *path = compile("naive", "--ranks 2 --microbatches 2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mock_begin(&cases[i].setting);
        const Outcome outcome = run(path, "cuda", "gpt", "--transport=local");
        assert_int_equal(outcome.status, STATUS_RUN_FAILED);
        if (!strstr(outcome.error.text, cases[i].words) || !strstr(outcome.error.text, "device cuda: "))
            fail_msg("%s", outcome.error.text);
        run_well(path, "auto", "gpt", "--transport=local");
        assert_int_equal(mock_report().launches, 0);
    }
    mock_begin(&(MockSetting){0});
    run_well(path, "auto", "gpt", "--transport=local");
    assert_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_cpu),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_halves_in_traces),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_experts_are_refused),
        cmocka_unit_test(test_reference_and_forward),
        cmocka_unit_test(test_races_are_seen),
        cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_no_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
