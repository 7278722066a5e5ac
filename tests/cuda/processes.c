/* One GPU and one process per rank: dprun on the mock CUDA runtime and the fake NCCL, under a real mpirun. */

#include "tests/cuda/orders.h"
#include "tests/exec/processes.h"

#include <math.h>

static char dpc[PATH_MAX];

static void compile(const char *schedule, const char *options)
{
    expect(finish(start("%s %s schedules/%s.dps -o %s", dpc, options, schedule, program)), 0, "");
}

/* Runs dprun and writes its losses to `losses`. The run must succeed, and the mocks must report no violation. */
static void run_well(const char *launcher, const char *options, char *losses, size_t size)
{
    expect(finish(start("%s %s --json --steps 2 %s %s %s", launcher, dprun, small, options, program)), 0, "");
    if (strstr(diagnostics, "mock"))
        fail_msg("%s", diagnostics);
    take_losses(losses, size);
}

static const char *under_mpirun(const char *environment)
{
    static char launcher[512];
    snprintf(launcher, sizeof launcher, "%s %s -n 4", environment, mpirun_command());
    return launcher;
}

static void assert_close(const char *left, const char *right)
{
    int numbers = 0;
    while (*left && *right) {
        char *left_end, *right_end;
        const double a = strtod(left, &left_end), b = strtod(right, &right_end);
        if (left_end > left && right_end > right) {
            assert_true(fabs(a - b) <= 1e-5 * fabs(b)); /* the bound for numbers after updates (Bounds in runs.h) */
            left = left_end;
            right = right_end;
            numbers++;
        } else {
            assert_int_equal(*left++, *right++);
        }
    }
    assert_true(numbers >= 8);
    assert_int_equal(*left, *right);
}

/* Losses and weights are equal to the bit to those of a run in one process, where messages are copied. The streams of
   the ranks progress in three orders; the run with the third order has a --rank-map. The losses of the run in one
   process are close to those of the CPU device. Chimera and DualPipe sum gradients over ranks; replicas do so in every
   schedule; all schedules sum norms. */
static void test_equals_local(void **state)
{
    (void)state;
    need_mpirun();
    static const struct {
        const char *name, *options, *replicas;
    } schedules[] = {{"dualpipe", "--ranks 4 --microbatches 8", ""},
                     {"chimera", "--ranks 4 --microbatches 4", ""},
                     {"zb-v", "--ranks 4 --microbatches 8", ""},
                     {"zb-h1", "--ranks 2 --microbatches 4", "--replicas 2"},
                     {"dualpipe", "--ranks 2 --microbatches 4", "--replicas 2"}};
    static char local[1 << 14], cpu[1 << 14], nccl[1 << 14];
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        char options[PATH_MAX];
        compile(schedules[s].name, schedules[s].options);
        snprintf(options, sizeof options, "--device cpu %s", schedules[s].replicas);
        run_well("", options, cpu, sizeof cpu);
        snprintf(options, sizeof options, "--device cuda-fp32 --save %s/local %s", folder, schedules[s].replicas);
        run_well("", options, local, sizeof local);
        assert_close(local, cpu);
        for (int order = 0; order < 3; order++) {
            char environment[64];
            snprintf(environment, sizeof environment, "MOCK_ORDER=%d %s", order,
                     order == 1 ? "MOCK_ALONE=1" : "MOCK_DEVICES=4");
            snprintf(options, sizeof options, "--device cuda-fp32 --save %s/nccl --trace %s/trace %s %s", folder,
                     folder, schedules[s].replicas, order == 2 ? "--rank-map 2,0,3,1" : "");
            run_well(under_mpirun(environment), options, nccl, sizeof nccl);
            assert_string_equal(local, nccl);
            expect(finish(start("cmp %s/local %s/nccl", folder, folder)), 0, "");
        }
        expect(finish(start("grep -c '\"ph\":\"X\"' %s/trace; grep -c '\"ph\":\"s\"' %s/trace; tail -c 3 %s/trace",
                            folder, folder, folder)),
               0, "");
        int events = 0, messages = 0;
        assert_int_equal(sscanf(output, "%d\n%d\n", &events, &messages), 2);
        assert_true(events > 100 && messages > 20);
        assert_non_null(strstr(output, "]}"));
    }
}

/* Random orders under mpirun, with MPI on the CPU and with NCCL, give the same bits as in one process. */
static void test_random_orders(void **state)
{
    (void)state;
    need_mpirun();
    static char local[1 << 14], spread[1 << 14];
    for (uint64_t seed = 40; seed < 42; seed++) {
        static const char *const devices[] = {"--device cpu", "--device cuda-fp32"};
        char source[64];
        snprintf(source, sizeof source, "%s/order.csv", folder);
        write_order(source, seed, 4);
        expect(finish(start("%s %s -o %s", dpc, source, program)), 0, "");
        for (int device = 0; device < 2; device++) {
            run_well("", devices[device], local, sizeof local);
            run_well(under_mpirun("MOCK_ORDER=2 MOCK_DEVICES=4"), devices[device], spread, sizeof spread);
            assert_string_equal(local, spread);
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    need_mpirun();
    static const char *const command = "%s %s -n %d %s --device cuda-fp32 --steps 1 %s %s %s";
    compile("dualpipe", "--ranks 4 --microbatches 8");
    expect(finish(start(command, "MOCK_DEVICES=4", mpirun_command(), 3, dprun, "", small, program)), 2,
           "this program has 4 ranks, but there are 3 processes: use mpirun -n 4");
    expect(finish(start(command, "MOCK_DEVICES=2", mpirun_command(), 4, dprun, "", small, program)), 3,
           "rank 0 and rank 2 are on the same GPU, and NCCL needs one for each");
    expect(finish(start(command, "MOCK_DEVICES=1 NCCL_HOSTID=each", mpirun_command(), 4, dprun, "", small, program)), 0,
           "");
    expect(finish(start(command, "MOCK_DEVICES=4", mpirun_command(), 4, dprun, "--transport mpi", small, program)), 2,
           "--transport mpi cannot transfer the memory of GPUs; use --transport nccl");
}

/* NCCL fails on one rank: all ranks end before the deadline, and the message names the call that failed. If the call
   was made for an instruction, the message also names the instruction and its line. */
static void test_failures(void **state)
{
    (void)state;
    need_mpirun();
    static const struct {
        const char *call;
        int at, rank;
        bool in_stream;
    } cases[] = {
        {"GetUniqueId", 1, 0, false}, {"CommInitRankConfig", 1, 2, false},
        {"GroupEnd", 1, 3, false},    {"Send", 9, 1, true},
        {"Recv", 20, 2, true},        {"GroupEnd", 12, 0, true},
    };
    compile("dualpipe", "--ranks 4 --microbatches 8");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[128];
        const pid_t run = start("MOCK_DEVICES=4 FAKE_NCCL_RANK=%d FAKE_NCCL_FAILS=%s FAKE_NCCL_AT=%d %s -n 4 %s "
                                "--device cuda-fp32 --steps 2 %s %s",
                                cases[i].rank, cases[i].call, cases[i].at, mpirun_command(), dprun, small, program);
        snprintf(words, sizeof words, "nccl%s: internal error (3)", cases[i].call);
        expect(finish(run), 3, words);
        if (cases[i].in_stream) {
            assert_non_null(strstr(diagnostics, "instruction "));
            assert_non_null(strstr(diagnostics, "dualpipe.dps:"));
        }
        assert_null(strstr(diagnostics, "--deadline"));
    }
}

static pid_t start_long(const char *environment, const char *options)
{
    const pid_t mpirun = start("%s exec %s -n 4 %s --device cuda-fp32 --json --steps 1000000 %s %s %s", environment,
                               mpirun_command(), dprun, options, small, program);
    return mpirun;
}

static void test_killed(void **state)
{
    (void)state;
    need_mpirun();
    compile("dualpipe", "--ranks 4 --microbatches 8");
    const pid_t mpirun = start_long("MOCK_DEVICES=4", "");
    await_step("\"step\":2,");
    kill(a_rank(mpirun), SIGKILL);
    expect(finish(mpirun), 3, " was killed by signal 9 (Killed) ");
    assert_non_null(strstr(diagnostics, "dprun: rank "));
}

/* NCCL does not report a stopped rank. The deadline ends the run, and also the stopped process. The message says that a
   rank does not answer. */
static void test_stopped(void **state)
{
    (void)state;
    need_mpirun();
    compile("dualpipe", "--ranks 4 --microbatches 8");
    const pid_t mpirun = start_long("MOCK_DEVICES=4", "--deadline 4");
    await_step("\"step\":2,");
    const pid_t rank = a_rank(mpirun);
    kill(rank, SIGSTOP);
    expect(finish(mpirun), 3, "no answer from rank ");
    assert_non_null(strstr(diagnostics, "within 4 s (--deadline)"));
    const bool left = is_alive(rank);
    if (left)
        kill(rank, SIGKILL);
    assert_false(left);
}

/* The transfers of one rank never start. The deadline ends the run, with the message that a rank does not answer. */
static void test_silent(void **state)
{
    (void)state;
    need_mpirun();
    compile("dualpipe", "--ranks 4 --microbatches 8");
    expect(finish(start_long("MOCK_DEVICES=4 FAKE_NCCL_SILENT=2", "--deadline 2")), 3, "no answer from rank ");
    assert_non_null(strstr(diagnostics, "instruction "));
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dpc, sizeof dpc, "%s/dpc", getenv("BUILD") ? getenv("BUILD") : "build");
    return make_folder("tests/cuda/fake/dprun") ? 0 : -1;
}

int main(void)
{
    /* LeakSanitizer is off: it takes half a minute per process, and the mocks count what is not freed */
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_local), cmocka_unit_test(test_random_orders), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failures),     cmocka_unit_test(test_killed),        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_silent),
    };
    return cmocka_run_group_tests_name("processes", tests, set_up, remove_folder);
}
