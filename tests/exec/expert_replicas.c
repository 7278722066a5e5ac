/* Copies of experts on several ranks, and moves of experts between ranks, change the loads of ranks but not the
   outputs, up to rounding. Ranks are threads or processes. */
#include "tests/sanitized.h"
#include "tests/exec/divided.h"

/* The difference of two files of outputs (gradient_difference). */
static double outputs_differ(const char *one, const char *other)
{
    Arena arena = {0};
    Error error;
    char *contents[2], path[100];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? other : one);
        if (file_read(path, &arena, &contents[i], &bytes[i], &error) != STATUS_OK)
            fail_msg("%s", error.text);
    }
    assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
    const double difference =
        gradient_difference((float *)(void *)contents[0], (float *)(void *)contents[1], bytes[0] / sizeof(float));
    arena_free(&arena);
    return difference;
}

/* The value of a key in the line of a step, counted from 0, of the output of --json. */
static double json_number(int step, const char *key)
{
    char line[1 << 14], path[100];
    snprintf(path, sizeof path, "%s/output", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = -1; i < step; i += line[0] == '{') /* skips notes: the line of a step begins with { */
        assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    const char *found = strstr(line, key);
    if (!found)
        fail_msg("no %s in %s", key, line);
    return strtod(found + strlen(key), NULL);
}

#define FORWARD "--forward-only --set sequence=32 --json --steps 5 "

/* Runs with and without `options`, and compares the outputs of the last step: to the bit if `same_blocks` (the products
   have the same blocks of rows in both runs), else within GRADIENT_LIMIT. */
static void check_outputs(const char *before, const char *common, const char *options, bool same_blocks)
{
    char arguments[600];
    snprintf(arguments, sizeof arguments, FORWARD "%s --outputs %s/plain", common, folder);
    assert_runs(before, arguments);
    snprintf(arguments, sizeof arguments, FORWARD "%s %s --outputs %s/placed", common, options, folder);
    assert_runs(before, arguments);
    if (same_blocks)
        assert_same_files("plain", "placed");
    else
        assert_true(outputs_differ("plain", "placed") <= GRADIENT_LIMIT);
}

/* Without copies the matrix products have the same blocks of rows in both runs, so outputs are equal to the bit. With
   copies they are nearly equal. */
TEST(copies_and_moves_change_no_outputs)
{
    static const char *const schedules[] = {"1f1b", "prefill"};
    char program[200];
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        compile_schedule(schedules[i], 2, program);
        check_outputs("", "--replicas 2 --expert-parallel 2", "--rebalance 2", true);
        check_outputs("", "--replicas 2 --expert-parallel 2", "--expert-replicas 4 --rebalance 2 --moves 3", false);
        if (SANITIZED)
            continue;
        check_outputs("", "--replicas 4 --expert-parallel 4", "--expert-replicas 4 --rebalance 1", false);
        check_outputs("", "--replicas 4 --expert-parallel 2", "--expert-replicas 8", false);
    }
}

/* If a run with copies of experts loads a file, every rank reads all copies that it holds: the outputs are those of a
   run without copies. */
TEST(loaded_experts_have_copies)
{
    char program[200], arguments[300];
    compile_schedule("1f1b", 2, program);
    snprintf(arguments, sizeof arguments,
             "--set sequence=32 --steps 2 --replicas 2 --expert-parallel 2 --save %s/trained", folder);
    assert_runs("", arguments);
    snprintf(arguments, sizeof arguments, "--replicas 2 --expert-parallel 2 --load %s/trained", folder);
    check_outputs("", arguments, "--expert-replicas 4 --rebalance 2", false);
}

/* With --moves 1 at most one expert of each of the 7 layers with experts moves. Without --moves more experts move, and
   the ranks' loads get closer. */
TEST(loads_get_closer_within_the_moves)
{
    char program[200];
    compile_schedule("1f1b", 2, program);
    assert_runs("", FORWARD "--replicas 2 --expert-parallel 2 --expert-replicas 2 --rebalance 2 --moves 1");
    assert_true(json_number(0, "\"moved_experts\":") == 0);
    const double moved = json_number(1, "\"moved_experts\":");
    assert_true(moved >= 1 && moved <= 7);
    assert_runs("", FORWARD "--replicas 2 --expert-parallel 2 --expert-replicas 2 --rebalance 2");
    assert_true(json_number(1, "\"moved_experts\":") > moved);
    const double before = json_number(1, "\"rank_load\":"), after = json_number(2, "\"rank_load\":");
    if (!(before > 1.1 && after - 1 < 0.7 * (before - 1)))
        fail_msg("the busiest rank gets %g times the mean before, and %g after", before, after);
    assert_true(json_number(2, "\"worst_rank_load\":") >= after);
    assert_runs("", "--forward-only --steps 3 --replicas 2 --expert-parallel 2 --expert-replicas 2 --rebalance 2");
    assert_prints("experts    of a layer are divided among 2 replicas, with 2 further copies: 5 on each rank");
    assert_prints("times the mean number of tokens up to step 2, ");
    assert_prints(" moved in 1 placement\n");
}

TEST(processes_move_experts)
{
    char program[200], before[300];
    if (!mpirun_is_there())
        skip();
    compile_schedule("1f1b", 2, program);
    snprintf(before, sizeof before, "%s -n 4", mpirun_command());
    check_outputs(before, "--replicas 2 --expert-parallel 2", "--expert-replicas 4 --rebalance 2", false);
    assert_true(json_number(1, "\"moved_experts\":") > 0);
}

TEST(copies_that_make_no_sense_are_refused)
{
    char program[200];
    compile_schedule("1f1b", 1, program);
    assert_refused("--replicas 2 --expert-parallel 2 --expert-replicas 2", 2,
                   "--expert-replicas needs --forward-only or a program without backward passes");
    assert_refused("--replicas 2 --expert-parallel 2 --rebalance 2", 2, "--rebalance needs --forward-only");
#define TOGETHER "--forward-only --replicas 4 --expert-parallel 4 "
    assert_refused(TOGETHER "--expert-replicas 6", 2,
                   "--expert-replicas 6: 14 physical experts do not divide among --expert-parallel 4 ranks; "
                   "--expert-replicas 8 would");
    assert_refused(TOGETHER "--expert-replicas 28", 2,
                   "--expert-replicas 28: a rank would hold an expert twice; with experts = 8 and --expert-parallel 4 "
                   "it can be 24 "
                   "at most");
    assert_refused(TOGETHER "--rebalance 2 --steps 2", 2,
                   "--rebalance 2: a run of 2 steps ends before experts move; use more --steps");
    assert_refused(TOGETHER "--expert-replicas 4 --check", 2, "--check");
    assert_refused(TOGETHER "--expert-replicas 4 --reference", 2, "--reference");
    assert_refused(TOGETHER "--expert-replicas 4 --model gpt", 2, "model gpt has no experts");
    assert_refused(TOGETHER "--moves 4", 2, "--rebalance");
    assert_refused(TOGETHER "--rebalance 2 --moves 1 --steps 4", 2, "--moves 1 can never move an expert");
    assert_refused("--forward-only --replicas 2 --expert-parallel 1 --expert-replicas 2", 2,
                   "--expert-replicas needs --expert-parallel of 2 or more");
    assert_refused("--forward-only --rebalance 2 --steps 4", 2, "--expert-parallel");
}

int main(void) { return test_program("expert_replicas", make_model, remove_folder); }
