/* The sums of gradients in a trace. Each sum is an interval of its own, because it runs concurrently with the rest of
   the step. */
#include "tests/exec/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/sums.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Compiles a schedule, runs two steps, and writes the path of their trace to `trace`. */
static void run(const char *compiler_arguments, char trace[static 100])
{
    char command[1000], program[100];
    const char *build = getenv("BUILD");
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    snprintf(trace, 100, "%s/trace.json", folder);
    snprintf(command, sizeof command, "%s/dpc %s -o %s", build ? build : "build", compiler_arguments, program);
    assert_int_equal(system(command), 0);
    char *arguments[] = {"dprun", "--model", "mlp",        "--set",       "hidden=32", "--steps", "2", "--trace",
                         trace,   "--set",   "sequence=8", "--transport", "local",     program,   NULL};
    Run run;
    run_load(&run, arguments);
    run_to_end(&run, &(SessionHooks){0});
}

static double number_after(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    assert_non_null(found);
    return strtod(found + strlen(key), NULL);
}

/* Returns the number of sums in a trace. Checks that each has a start and an end, and that the rank's wait for it is no
   longer than the sum itself. */
static int check_sums(const char *trace)
{
    char line[1024];
    double begin = -1;
    int count = 0;
    FILE *file = fopen(trace, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (!strstr(line, "\"cat\":\"sum\""))
            continue;
        if (strstr(line, "\"ph\":\"b\"")) {
            assert_true(begin < 0);
            begin = number_after(line, "\"ts\":");
            continue;
        }
        const double waited = number_after(line, "\"waited\":"), end = number_after(line, "\"ts\":");
        assert_non_null(strstr(line, "\"ph\":\"e\""));
        assert_true(begin >= 0 && waited >= 0 && begin + waited <= end + 0.01);
        begin = -1;
        count++;
    }
    fclose(file);
    assert_true(begin < 0);
    return count;
}

TEST(every_sum_is_an_interval)
{
    char trace[100];
    run("--ranks 4 --microbatches 8 schedules/chimera.dps", trace);
    assert_int_equal(check_sums(trace), 2 * 4 * 2); /* steps, ranks, chunks */
    run("--ranks 3 --microbatches 4 schedules/1f1b.dps", trace);
    assert_int_equal(check_sums(trace), 0); /* no stage has several copies */
}

/* Stage 0 of pipedream-rr has copies on two ranks. They sum their gradients before each U, not once a step: a trace of
   two steps has more than 2 * 2 sums (steps, copies). */
TEST(sums_of_asynchronous_programs_are_intervals)
{
    char trace[100];
    run("schedules/pipedream-rr.dps", trace);
    assert_true(check_sums(trace) > 2 * 2);
}

int main(void) { return test_program("sums", make_folder, remove_folder); }
