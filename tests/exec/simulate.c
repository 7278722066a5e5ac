/* --device sim: passes run in the order of the timeline and never before their predicted time, even on a busy machine.
   tests/bench/simulate measures how much later they run. */
#include "tests/exec/shell.h"
#include "tests/test.h"
#include "tests/transport/plugin.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024, RANKS = 4, PAIRS = 2 };
static const double slack = 2; /* microseconds; a trace rounds its times to ns */
static char folder[] = "/tmp/simulate.XXXXXX";

static FILE *open_trace(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    return stream;
}

static double number(const char *line, const char *name)
{
    const char *found = strstr(line, name);
    assert_non_null(found);
    return strtod(found + strlen(name), NULL);
}

typedef struct Pass {
    char name[200];
    double start, duration;
} Pass;

/* Reads the next pass of a trace. False: the trace has no more passes. */
static bool next_pass(FILE *stream, Pass *pass)
{
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stream))
        if (strstr(line, "\"cat\":\"compute\"")) {
            const char *name = strstr(line, "\"pass\":\"");
            assert_non_null(name);
            snprintf(pass->name, sizeof pass->name, "%d %.*s", (int)number(line, "\"pid\":"),
                     (int)strcspn(name + 8, "\""), name + 8);
            pass->start = number(line, "\"ts\":");
            pass->duration = number(line, "\"dur\":");
            return true;
        }
    return false;
}

static void compare_traces(void)
{
    FILE *predicted = open_trace("predicted"), *measured = open_trace("measured");
    Pass expected, happened;
    double origin = 1e300;
    while (next_pass(measured, &happened))
        origin = happened.start < origin ? happened.start : origin;
    rewind(measured);
    int passes = 0;
    for (; next_pass(predicted, &expected); passes++) {
        assert_true(next_pass(measured, &happened));
        assert_string_equal(expected.name, happened.name);
        if (happened.start - origin < expected.start - slack || happened.duration < expected.duration - slack)
            fail_msg("rank and pass %s: %.3f for %.3f, predicted %.3f for %.3f", happened.name, happened.start - origin,
                     happened.duration, expected.start, expected.duration);
    }
    assert_false(next_pass(measured, &happened));
    assert_true(passes > 0);
    fclose(predicted);
    fclose(measured);
}

/* The times of DeepSeek's published profile (maps/deepseek-train.map), in tenths of a ms and rounded; the unit makes
   them 0.3 times as long. */
#define COMPONENTS                                                                                                  \
    "unit=3e-5,attention.F=46,mlp.B=54,mlp.W=51,mlp.F=46,attention.B=95,attention.W=24,combine.B=58,dispatch.F=67," \
    "dispatch.B=76,combine.F=87,layers=2"

/* Schedules, with all kinds of costs: of passes, halves, pairs, single stages, messages, links and components. */
static const struct {
    const char *schedule, *costs;
    const char *predicted, *measured; /* further options of dpc and of dprun */
} runs[] = {
    {"--ranks 4 --microbatches 5 schedules/1f1b.dps", "F=2,B=3,comm=0.7", "", ""},
    {"--ranks 4 --microbatches 8 schedules/dualpipe.dps", "F=1,I=1.3,W=0.8,FB=2,FB[1]=2.6,comm=0.1,unit=2e-3", "", ""},
    {"--ranks 4 --microbatches 5 schedules/prefill.dps", "F=2,FF=3,comm=0.5", "", ""},
    {"--ranks 4 --microbatches 6 schedules/zb-v.dps", "F=1,I=1.5,W=0.5,F[2]=3,comm=0.2,comm[1->2]=1.4", "", ""},
    {"--ranks 4 --microbatches 8 schedules/dualpipe.dps", COMPONENTS, "", ""},
    {"--ranks 4 --microbatches 5 schedules/prefill.dps", COMPONENTS, "", ""},
    {"--ranks 4 --microbatches 8 schedules/dualpipe.dps", COMPONENTS, "--cost overlap=1", "--in-turn"},
};

/* If the computing components of F&Bs take three times as long as the communicating ones, more than half of the
   communication is hidden. With --in-turn dprun reports no all-to-alls. */
TEST(communication_is_hidden)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    const char *const costs = "attention.F=6,attention.B=6,attention.W=6,mlp.F=6,mlp.B=6,mlp.W=6,dispatch.F=2,"
                              "dispatch.B=2,combine.F=2,combine.B=2,layers=2,unit=1e-3";
    assert_int_equal(shell("%s/dpc --ranks 2 --microbatches 4 schedules/dualpipe.dps -o %s/prog.bin", build, folder),
                     0);
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        assert_int_equal(shell("%s/dprun --device sim --cost %s %s --steps 1 --json %s/prog.bin >%s/out", build, costs,
                               in_turn ? "--in-turn" : "", folder, folder),
                         0);
        assert_int_equal(shell("grep -q all_to_all %s/out", folder) == 0, !in_turn);
        if (in_turn)
            continue;
        char line[LINE_BYTES];
        FILE *stream = open_trace("out");
        assert_non_null(fgets(line, sizeof line, stream));
        fclose(stream);
        const double hidden = number(line, "\"all_to_all_hidden\":");
        assert_true(hidden > 0.5 && hidden <= 1);
        assert_true(number(line, "\"all_to_all_ms\":") >= PAIRS * 4 * 2 * 2.0);
    }
}

static void test_schedules(const char *launcher)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        assert_int_equal(shell("%s/dpc %s --cost '%s' %s -o %s/prog.bin --emit=trace:%s/predicted", build,
                               runs[i].schedule, runs[i].costs, runs[i].predicted, folder, folder),
                         0);
        assert_int_equal(shell("%s %s/dprun --device sim --cost '%s' %s --steps 1 --json --trace %s/measured "
                               "%s/prog.bin >%s/out 2>&1",
                               launcher, build, runs[i].costs, runs[i].measured, folder, folder, folder),
                         0);
        compare_traces();
        assert_int_equal(shell("grep -q '^{\"step\":1,\"loss\":null,.*\"makespan_ms\":' %s/out", folder), 0);
    }
}

TEST(test_local) { test_schedules(""); }

TEST(test_mpi)
{
    char launcher[256];
    if (!mpirun_is_there()) {
        print_message("no mpirun: skipped\n");
        skip();
    }
    snprintf(launcher, sizeof launcher, "%s -n %d", mpirun_command(), RANKS);
    test_schedules(launcher);
}

/* --device sim also runs with --forward-only and --reference. Its output says whether F&Bs run component by component;
   with --in-turn they do not. */
TEST(test_forms)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    assert_int_equal(shell("%s/dpc --ranks 2 --microbatches 2 schedules/1f1b.dps -o %s/prog.bin", build, folder), 0);
    assert_int_equal(shell("%s/dprun --device sim --forward-only %s/prog.bin >%s/out 2>&1", build, folder, folder), 0);
    assert_int_equal(
        shell("%s/dprun --device sim --reference --steps 1 %s/prog.bin >%s/out 2>&1", build, folder, folder), 0);
    assert_int_equal(shell("grep -q 'no losses' %s/out && grep -q 'makespan of the last step' %s/out", folder, folder),
                     0);
    assert_int_equal(shell("%s/dpc --ranks 4 --microbatches 8 schedules/dualpipe.dps -o %s/prog.bin", build, folder),
                     0);
    assert_int_equal(shell("%s/dprun --device sim --steps 1 --cost mlp.F=1 %s/prog.bin >%s/out 2>&1 &&"
                           "grep -q '^F&B        component by component' %s/out",
                           build, folder, folder, folder),
                     0);
    assert_int_equal(shell("%s/dprun --device sim --steps 1 --cost mlp.F=1 --in-turn %s/prog.bin >%s/out 2>&1 &&"
                           "! grep -q '^F&B' %s/out",
                           build, folder, folder, folder),
                     0);
}

/* A pass or a message that takes longer than the deadline does not count as a standstill; one that takes days is
   refused. */
TEST(test_long_times)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    static const char *const costs[] = {"F=3000,B=1", "F=1,B=1,comm=3000"};
    assert_int_equal(shell("%s/dpc --ranks 2 --microbatches 1 schedules/1f1b.dps -o %s/prog.bin", build, folder), 0);
    for (int i = 0; i < 4; i++) {
        char launcher[256] = "";
        if (i >= 2 && !mpirun_is_there())
            break;
        if (i >= 2)
            snprintf(launcher, sizeof launcher, "%s -n 2", mpirun_command());
        if (shell("%s %s/dprun --device sim --steps 1 --deadline 2 --cost %s %s/prog.bin >%s/out 2>&1", launcher, build,
                  costs[i % 2], folder, folder) != 0) {
            shell("cat %s/out >&2", folder);
            fail_msg("%s dprun --cost %s", launcher, costs[i % 2]);
        }
    }
    assert_int_equal(shell("%s/dprun --device sim --cost F=1e12,unit=1e6 %s/prog.bin >%s/out 2>&1; test $? = 2", build,
                           folder, folder),
                     0);
    assert_int_equal(shell("grep -q 'rank 0, instruction 0 (F m0.*): a pass or message would take 1e+18 s, more than a "
                           "day: --cost counts "
                           "in units of 1e+06 s (unit=SECONDS)' %s/out",
                           folder),
                     0);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return shell("rm -r %s", folder);
}

int main(void) { return test_program("simulate", set_up, tear_down); }
