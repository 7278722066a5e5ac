/* Traces of ranks that read different clocks, of replicas, and of --reference. */
#include "runtime/executor/clocks.h"
#include "tests/test.h"
#include "tests/transport/plugin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(test_common_clock)
{
    /* the same clock; a clock that is 500 ns ahead; a clock that is 1000 ns ahead and runs 10 % too fast */
    const ClockSample same[2] = {{.at = 10}, {.at = 1010}};
    const ClockSample ahead[2] = {{.at = 1500, .ahead = 500}};
    const ClockSample gains[2] = {{.at = 2000, .ahead = 1000}, {.at = 3000, .ahead = 1100}};
    assert_int_equal(clock_common(same, 777), 777);
    assert_int_equal(clock_common(ahead, 1600), 1100);
    assert_int_equal(clock_common(gains, 2000), 1000);
    assert_int_equal(clock_common(gains, 3000), 1900);
    assert_int_equal(clock_common(gains, 2500), 1450);
    assert_int_equal(clock_common(gains, 4000), 2800);
}

static int shell(const char *format, const char *folder)
{
    char command[4096];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    snprintf(command, sizeof command, format, build, folder, mpirun_command());
    return system(command);
}

/* Ranks 1 and 2 read clocks that are 4000 and 8000 s ahead of rank 0's clock. In the trace all times are those of rank
   0's clock: all events lie within 500 s, and no message arrives more than a second before it was sent. */
TEST(test_ranks_of_different_clocks)
{
    enum { MESSAGES = 1000 };
    static double sent[MESSAGES], received[MESSAGES];
    char folder[] = "/tmp/trace.XXXXXX", line[1024], path[64];
    if (!mpirun_is_there() || system("unshare --time --monotonic 1000 --fork true 2>/dev/null") != 0) {
        print_message("no mpirun, or no time namespaces: skipped\n");
        skip();
    }
    assert_non_null(mkdtemp(folder));
    assert_int_equal(shell("%s/dpc --ranks 3 --microbatches 6 schedules/1f1b.dps -o %s/prog.bin", folder), 0);
    assert_int_equal(
        shell("%3$s -n 3 sh -c 'r=$OMPI_COMM_WORLD_RANK; "
              "exec $([ $r = 0 ] || echo unshare --time --monotonic $((r*4000)) --fork) "
              "%1$s/dprun --json --model mlp --set hidden=8 --steps 2 --trace %2$s/trace %2$s/prog.bin' >%2$s/out",
              folder),
        0);
    snprintf(path, sizeof path, "%s/trace", folder);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    int events = 0, arrows = 0;
    while (fgets(line, sizeof line, stream)) {
        const char *time = strstr(line, "\"ts\":"), *id = strstr(line, "\"id\":");
        if (!time)
            continue;
        const double seconds = strtod(time + 5, NULL) * 1e-6;
        assert_true(seconds >= 0 && seconds < 500);
        events++;
        if (id) {
            const long number = strtol(id + 5, NULL, 10);
            assert_in_range(number, 0, MESSAGES - 1);
            (strstr(line, "\"ph\":\"s\"") ? sent : received)[number] = seconds;
            arrows++;
        }
    }
    fclose(stream);
    assert_true(events > 100);
    assert_int_equal(arrows, 2 * 2 * 24);
    for (int i = 0; i < MESSAGES; i++)
        assert_true(sent[i] - received[i] < 1);
    assert_int_equal(shell("rm -r %2$s", folder), 0);
}

/* Every member of the mesh is a process in the trace. Arrows stay within a replica. dpc reads the trace and uses only
   the ranks of replica 0. */
TEST(test_replicas)
{
    enum { MESSAGES = 1000, RANKS = 2, REPLICAS = 3 };
    int replicas[MESSAGES], events[RANKS * REPLICAS] = {0};
    char folder[] = "/tmp/trace.XXXXXX", line[1024], path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(shell("%s/dpc --ranks 2 --microbatches 4 schedules/1f1b.dps -o %s/prog.bin >%2$s/out", folder), 0);
    assert_int_equal(shell("%s/dprun --replicas 3 --json --model mlp --set hidden=8 --steps 2 --trace %s/trace "
                           "%2$s/prog.bin >%2$s/out 2>&1",
                           folder),
                     0);
    snprintf(path, sizeof path, "%s/trace", folder);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    memset(replicas, 0xff, sizeof replicas);
    bool named = false;
    while (fgets(line, sizeof line, stream)) {
        const char *process = strstr(line, "\"pid\":"), *id = strstr(line, "\"id\":");
        named |= strstr(line, "\"name\":\"rank 1 of replica 2\"") && process && atoi(process + 6) == 5;
        if (!process)
            continue;
        const int member = atoi(process + 6);
        assert_in_range(member, 0, RANKS * REPLICAS - 1);
        events[member] += strstr(line, "\"ph\":\"X\"") != NULL;
        if (!id || !strstr(line, "\"cat\":\"flow\""))
            continue;
        int *replica = &replicas[atoi(id + 5)];
        assert_true(*replica < 0 || *replica == member / RANKS);
        *replica = member / RANKS;
    }
    fclose(stream);
    assert_true(named);
    for (int member = 0; member < RANKS * REPLICAS; member++)
        assert_true(events[member] > 20 && events[member] == events[member % RANKS]);
    assert_int_equal(shell("%s/dpc diff --ranks 2 --microbatches 4 schedules/1f1b.dps %s/trace >%2$s/out && "
                           "grep '^1f1b: 2 ranks, 4 microbatches; measured: .*; replica 0 of 3$' %2$s/out",
                           folder),
                     0);
    assert_int_equal(
        shell("%s/dpc calibrate %s/trace | grep '^#   .*/trace: 1f1b, 2 ranks, 1 step, replica 0 of 3$'", folder), 0);
    assert_int_equal(shell("rm -r %2$s", folder), 0);
}

/* A trace of --reference has all stages on one rank. dpc diff refuses to compare it with a schedule, and says why, but
   compares the trace with itself. */
TEST(test_reference)
{
    char folder[] = "/tmp/trace.XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(shell("%s/dpc --ranks 2 --microbatches 4 schedules/1f1b.dps -o %s/prog.bin >%2$s/out", folder), 0);
    assert_int_equal(shell("%s/dprun --reference --replicas 2 --model mlp --set hidden=8 --steps 2 --trace %s/trace "
                           "%2$s/prog.bin >%2$s/out 2>&1 && "
                           "grep '^reference  this rank does the work of 2 ranks in each of 2 replicas$' %2$s/out && "
                           "grep '8 microbatches a step, as 4 on each of 2 replicas$' %2$s/out",
                           folder),
                     0);
    assert_int_equal(
        shell("! %s/dpc diff schedules/1f1b.dps %s/trace 2>%2$s/out && "
              "grep '/trace is a trace of dprun --reference, in which one rank does the work of all' %2$s/out",
              folder),
        0);
    assert_int_equal(shell("%s/dpc diff %s/trace %2$s/trace >%2$s/out", folder), 0);
    assert_int_equal(shell("rm -r %2$s", folder), 0);
}

int main(void) { return test_program("trace", NULL, NULL); }
