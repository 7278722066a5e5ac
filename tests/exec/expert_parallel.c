/* Experts divided among replicas: losses, norms of gradients, held-out loss and saved weights of several steps are
   equal to the bit to those of the whole model on one rank. Processes save the same weights as threads. A file saved
   under one division of the experts loads under any other. */
#include "tests/sanitized.h"
#include "tests/exec/divided.h"

#include <glob.h>

enum { REPLICAS = 4 };

static void check(const char *schedule, int ranks, int replicas, int shards)
{
    char what[300], program[200];
    Result together, reference;
    snprintf(what, sizeof what, "%s, %d ranks, %d replicas, experts over %d", schedule, ranks, replicas, shards);
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    const Training training = {.path = program, .model = model, .layers = 8, .replicas = replicas, .shards = shards};
    Training on_one = training;
    on_one.reference = true;
    train(&training, &together);
    train(&on_one, &reference);
    assert_equal_numbers(what, &together, &reference);
    release(&together);
    release(&reference);
}

/* Compiles a schedule to prog.bin. False: it is one of the pipedream schedules, which are asynchronous, or does not run
   on that many ranks. */
static bool compiles(const char *schedule, int ranks)
{
    char command[600];
    const char *build = getenv("BUILD");
    snprintf(command, sizeof command, "%s/dpc --ranks %d --microbatches %d %s -o %s/prog.bin 2>/dev/null",
             build ? build : "build", ranks, MICROBATCHES, schedule, folder);
    return !strstr(schedule, "pipedream") && system(command) == 0;
}

/* Numbers of shards take turns: four_ranks_equal_the_reference has schedules with each of them. */
TEST(divided_experts_equal_the_reference)
{
    glob_t found;
    int checked = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        for (int ranks = 1 + SANITIZED; ranks <= 2; ranks++) {
            const int shards = SANITIZED ? 2 : 1 << (i + (size_t)ranks) % 3;
            if (!compiles(found.gl_pathv[i], ranks))
                continue;
            check(found.gl_pathv[i], ranks, shards == 1 || SANITIZED ? 2 : REPLICAS, shards);
            checked++;
        }
    assert_true(checked >= 20);
    globfree(&found);
}

/* On four ranks: one stage per rank (1f1b), two stages per rank (zb-v), and each stage on two ranks of a replica
   (chimera). */
TEST(four_ranks_equal_the_reference)
{
    static const char *const schedules[] = {"schedules/1f1b.dps", "schedules/zb-v.dps", "schedules/chimera.dps"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int shards = 1; shards <= REPLICAS >> SANITIZED; shards *= 2) {
            assert_true(compiles(schedules[i], 4));
            check(schedules[i], 4, shards == 1 ? 2 : shards, shards);
        }
}

/* The runs that load the file change no weights: their learning rate is 0, and so is the rate of the router's bias. */
TEST(a_saved_file_loads_under_any_division)
{
    char program[200], arguments[500];
    compile_schedule("1f1b", 2, program);
    snprintf(arguments, sizeof arguments, "--steps 2 --replicas 4 --expert-parallel 4 --save %s/first", folder);
    assert_runs("", arguments);
    for (int shards = 1; shards <= REPLICAS; shards *= 2) {
        snprintf(arguments, sizeof arguments,
                 "--steps 1 --set learning_rate=0 --set bias_rate=0 --replicas 4 --expert-parallel %d --load %s/first "
                 "--save %s/again",
                 shards, folder, folder);
        assert_runs("", arguments);
        assert_same_files("first", "again");
    }
}

TEST(processes_give_the_same_bits)
{
    char program[200], arguments[300], before[300];
    if (!mpirun_is_there())
        skip();
    compile_schedule("dualpipe", 2, program);
    snprintf(arguments, sizeof arguments, "--steps 2 --replicas 2 --expert-parallel 2 --save %s/threads", folder);
    assert_runs("", arguments);
    snprintf(arguments, sizeof arguments, "--steps 2 --replicas 2 --expert-parallel 2 --save %s/processes", folder);
    snprintf(before, sizeof before, "%s -n 4", mpirun_command());
    assert_runs(before, arguments);
    assert_same_files("threads", "processes");
}

/* Runs the program on two replicas with divided experts, without `option` and with it. Both write the same file; what:
   the option that names the file. */
static void assert_same_bits_with(const char *option, const char *options, const char *what)
{
    char arguments[300];
    for (int with = 0; with < 2; with++) {
        snprintf(arguments, sizeof arguments, "%s --replicas 2 --expert-parallel 2 %s %s %s/%s", options,
                 with ? option : "", what, folder, with ? "with" : "without");
        assert_runs("", arguments);
    }
    assert_same_files("with", "without");
}

TEST(in_turn_gives_the_same_bits)
{
    char program[200];
    compile_schedule("dualpipe", 2, program);
    assert_same_bits_with("--in-turn", "--steps 2", "--save");
}

/* With any --link the saved weights are the same, and the times include the delays of the link. Of the 8 layers 7 have
   experts. In each of these a microbatch has five all-to-alls, one after the other: forward the counts of dispatch, the
   rows of dispatch and the rows of combine; backward the rows of combine and of dispatch. */
TEST(a_network_changes_only_times)
{
    char program[200], arguments[300], before[300];
    const char *network[] = {"", "--link latency=200us,bandwidth=20M", "--link latency=1ms,ranks=0-1"};
    compile_schedule("dualpipe", 2, program);
    for (int i = 0; i < 3; i++) {
        snprintf(arguments, sizeof arguments, "--steps 2 --replicas 2 --expert-parallel 2 %s --save %s/%d", network[i],
                 folder, i);
        assert_runs("", arguments);
        assert_same_files("0", (char[]){(char)('0' + i), '\0'});
    }
    compile_schedule("1f1b", 1, program);
    snprintf(before, sizeof before, "%s -n 2", mpirun_command());
    for (int processes = 0; processes <= mpirun_is_there(); processes++) {
        assert_runs(processes ? before : "", "--steps 1 --json --replicas 2 --expert-parallel 2 --link latency=2ms");
        assert_true(printed_number("\"makespan_ms\":") >= 7 * MICROBATCHES * 5 * 2.0);
        assert_true(printed_number("\"all_to_all_ms\":") >= 2 * 7 * MICROBATCHES * 5 * 2.0);
        assert_hidden_share();
    }
}

/* An asynchronous schedule updates no weights with --forward-only, so its experts can be divided. */
TEST(an_asynchronous_schedule_runs_forward_only)
{
    char program[200];
    compile_schedule("pipedream", 2, program);
    assert_same_bits_with("--reference", "--forward-only", "--outputs");
}

TEST(what_cannot_be_divided_is_refused)
{
    char program[200];
    compile_schedule("1f1b", 2, program);
    assert_refused("--expert-parallel 2", 2, "--expert-parallel 2 does not divide --replicas 1");
    assert_refused("--replicas 3 --expert-parallel 3", 2, "--expert-parallel 3 does not divide experts = 8");
    assert_refused("--replicas 2 --expert-parallel 2 --model gpt", 2,
                   "--expert-parallel 2: model gpt has no experts; --model moe has");
    assert_refused("--replicas 2 --expert-parallel 2 --expert-rows 0", 2,
                   "a factor above 0 and at most 1e6, such as 1.5");
    assert_refused("--link ranks=0-1", 2, "--link: give a latency above 0, a bandwidth, or both");
    assert_refused("--link latency=1us,ranks=0-2", 2, "--link: ranks=0-2, but ranks have the numbers 0 to 1");
    compile_schedule("pipedream", 2, program);
    assert_refused("--replicas 2 --expert-parallel 2", 2, "--expert-parallel needs a synchronous schedule");
}

/* A step in which a rank gets more rows than --expert-rows allows ends the run. The message names rank, instruction,
   component and layer. */
TEST(rows_beyond_the_plan_end_the_run)
{
    char program[200];
    compile_schedule("1f1b", 1, program);
    assert_runs("", "--steps 1 --replicas 2 --expert-parallel 2 --expert-rows 2");
    assert_refused("--steps 1 --replicas 2 --expert-parallel 2 --expert-rows 0.5", 3, ": dispatch of layer 1: ");
    assert_prints("but --expert-rows has planned room for 8: these need --expert-rows ");
    assert_prints("rank 0 of replica ");
    assert_prints("instruction 0 (F m0");
}

int main(void) { return test_program("expert_parallel", make_model, remove_folder); }
