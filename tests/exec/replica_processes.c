/* Replicas as a user runs them, as threads of one process and under mpirun: numbers and files are the same in both,
   messages name rank and replica, a failure of any process ends all, and processes with different programs or options
   are refused. */
#include "tests/exec/processes.h"

static void compile(const char *options, const char *name)
{
    expect(finish(start("%s/dpc %s -o %s/%s", getenv("BUILD") ? getenv("BUILD") : "build", options, folder, name)), 0,
           "");
}

static pid_t start_replicas(const char *options)
{
    return start("exec %s -n 4 %s --replicas 2 --json --steps 1000000 %s %s %s", mpirun_command(), dprun, options,
                 small, program);
}

/* Processes give the same losses and the same file of weights as threads. The processes have a --rank-map, and both
   runs load weights. */
TEST(test_equals_local)
{
    need_mpirun();
    static char local[1 << 14], mpi[1 << 14];
    char common[PATH_MAX];
    snprintf(common, sizeof common, "--replicas 2 --json --steps 2 %s", small);
    expect(finish(start("%s --save %s/first %s %s", dprun, folder, common, program)), 0, "");
    expect(finish(start("%s --load %s/first --save %s/local %s %s", dprun, folder, folder, common, program)), 0, "");
    take_losses(local, sizeof local);
    expect(finish(start("%s -n 4 %s --rank-map 3,1,0,2 --load %s/first --save %s/mpi %s %s", mpirun_command(), dprun,
                        folder, folder, common, program)),
           0, "");
    take_losses(mpi, sizeof mpi);
    assert_string_equal(local, mpi);
    expect(finish(start("cmp %s/local %s/mpi", folder, folder)), 0, "");
}

/* Outputs are in the order of the step's microbatches: replica after replica. */
TEST(test_forward_only)
{
    static const char *const command = "%s --forward-only --replicas 3 %s --outputs %s/%s %s %s";
    expect(finish(start(command, dprun, "", folder, "replicas", small, program)), 0, "");
    expect(finish(start(command, dprun, "--reference", folder, "reference", small, program)), 0, "");
    expect(finish(start("cmp %s/replicas %s/reference", folder, folder)), 0, "");
}

TEST(test_check_and_simulation)
{
    expect(finish(start("%s --check --replicas 3 --steps 2 %s %s", dprun, small, program)), 0, "");
    assert_non_null(strstr(output, "replicas   3; together they have 6 ranks and 6 microbatches a step\n"));
    assert_non_null(strstr(output, "equal to the bit in 2 steps"));
    expect(finish(start("%s --device sim --cost unit=1e-4 --replicas 3 --json %s", dprun, program)), 0, "");
    expect(finish(start("%s --profile %s/profile --replicas 2 --steps 8 %s %s", dprun, folder, small, program)), 0, "");
    expect(finish(start("grep -q '^comm  *=' %s/profile", folder)), 0, "");
}

TEST(test_killed)
{
    need_mpirun();
    const pid_t mpirun = start_replicas("");
    await_step("\"step\":2,");
    kill(a_rank(mpirun), SIGKILL);
    expect(finish(mpirun), 3, " was killed by signal 9 (Killed) ");
    const char *name = strstr(diagnostics, "dprun: rank ");
    assert_true(name && strstr(name, " of replica ") == name + strlen("dprun: rank 0"));
}

TEST(test_stopped)
{
    need_mpirun();
    const pid_t mpirun = start_replicas("--deadline 5");
    await_step("\"step\":2,");
    const pid_t rank = a_rank(mpirun);
    kill(rank, SIGSTOP);
    expect(finish(mpirun), 3, "within 5 s");
    kill(rank, SIGKILL);
    const char *name = strstr(diagnostics, "no answer from rank ");
    assert_true(name && strstr(name, " of replica ") == name + strlen("no answer from rank 0"));
}

TEST(test_full_disk)
{
    need_mpirun();
    expect(finish(start("%s -n 4 %s --replicas 2 --steps 1 --save /dev/full %s %s", mpirun_command(), dprun, small,
                        program)),
           3, "/dev/full: No space left on device");
}

TEST(test_wrong_number)
{
    need_mpirun();
    static const char *const command = "%s -n %d %s %s --steps 1 %s %s";
    expect(finish(start(command, mpirun_command(), 3, dprun, "--replicas 2", small, program)), 2,
           "2 replicas of this program's 2 ranks need 4 processes, but there are 3 processes: use mpirun -n 4");
    expect(finish(start(command, mpirun_command(), 4, dprun, "", small, program)), 2,
           "this program has 2 ranks, but there are 4 processes: use mpirun -n 2, or dprun --replicas 2");
    expect(finish(start(command, mpirun_command(), 4, dprun, "--replicas 2 --rank-map 0,1", small, program)), 2,
           "--rank-map names 2 ranks, but the replicas together have 4");
    expect(finish(start("%s --replicas 4096 %s", dprun, program)), 2, "4096 replicas of 2 ranks");
}

/* Runs process 3 with `different` options and program, the other processes with `common` ones. All refuse to run. */
static void expect_refusal_of(const char *common, const char *different, const char *words)
{
    expect(finish(start("%s -n 4 sh -c 'test $OMPI_COMM_WORLD_RANK = 3 && exec %s %s; exec %s %s'", mpirun_command(),
                        dprun, different, dprun, common)),
           2, words);
    assert_non_null(strstr(diagnostics, ": start all processes with the same program, options and data"));
}

/* Calls expect_refusal_of for processes that train the small model; process 3 has the options `different`. */
static void expect_refusal(const char *different, const char *words)
{
    char trains[2][PATH_MAX + 400];
    snprintf(trains[0], sizeof trains[0], "%s --replicas 2 %s", small, program);
    snprintf(trains[1], sizeof trains[1], "%s %s", small, different);
    expect_refusal_of(trains[0], trains[1], words);
}

TEST(test_disagreement)
{
    need_mpirun();
    static const char *const differences[][2] = {
        {"--set learning_rate=0.5", "learning_rate 0.5, but rank 0 of replica 0 has learning_rate 0.004: start"},
        {"--steps 7", "--steps 7, but rank 0 of replica 0 has --steps 400"},
        {"--link latency=1ms", "--link latency=0.001s, but rank 0 of replica 0 has --link not given: "},
        {"--model mlp", "model mlp, but rank 0 of replica 0 has model gpt: "},
        {"--held-out all", "--held-out all, but "},
        {"--model moe --expert-parallel 2", "--expert-parallel 2, but rank 0 of replica 0 has --expert-parallel 1"},
        {"--data README.md", "data with checksum "}};
    char different[PATH_MAX], words[200];
    compile("--ranks 2 --microbatches 2 schedules/gpipe.dps", "gpipe.bin");
    compile("--ranks 4 --microbatches 4 schedules/gpipe.dps", "four.bin");
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        snprintf(different, sizeof different, "--replicas 2 %s %s", differences[i][0], program);
        snprintf(words, sizeof words, "rank 1 of replica 1 has %s", differences[i][1]);
        expect_refusal(different, words);
    }
    snprintf(different, sizeof different, "--replicas 2 %s/gpipe.bin", folder);
    expect_refusal(different, "rank 1 of replica 1 has program gpipe.dps (2 ranks, 2 microbatches, checksum ");
    snprintf(different, sizeof different, "%s/four.bin", folder);
    expect_refusal(different, " has program gpipe.dps (4 ranks, 4 microbatches, checksum ");
}

/* Simulated runs are refused if process 3 has another --cost: of a pass, of a pass of one stage, of messages, of the
   messages on one link, or of a component. */
TEST(test_different_costs)
{
    need_mpirun();
    static const char *const costs[] = {"F=2", "F=1,F[1]=2", "F=1,comm=0.1", "\"F=1,comm[0->1]=0.1\"", "mlp.F=1"};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        char simulates[2][PATH_MAX + 100];
        for (int j = 0; j < 2; j++)
            snprintf(simulates[j], sizeof simulates[j], "--device sim --replicas 2 --cost %s %s", j ? costs[i] : "F=1",
                     program);
        expect_refusal_of(simulates[0], simulates[1], "rank 1 of replica 1 has costs with checksum ");
    }
}

int main(void)
{
    if (!make_folder("dprun"))
        return 1;
    compile("--ranks 2 --microbatches 2 schedules/1f1b.dps", "prog.bin");
    return test_program("replica_processes", NULL, remove_folder);
}
