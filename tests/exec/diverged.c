/* A training that diverges ends before the update, saves its weights under another name, prints which step it was, and
   leaves every output readable. */
#include "tests/exec/processes.h"

static const char wild[] = "--set clip_norm=0 --set warmup_steps=0 --set learning_rate=1e3 --steps 50";

static void compile(const char *schedule, const char *settings)
{
    expect(finish(start("%.*s/dpc %s schedules/%s.dps -o %s", (int)(strrchr(dprun, '/') - dprun), dprun, settings,
                        schedule, program)),
           0, "");
}

/* The step that the message names. */
static unsigned step_of(const char *text)
{
    unsigned step = 0;
    const char *found = strstr(text, "dprun: step ");
    if (!found || sscanf(found, "dprun: step %u: ", &step) != 1 || step < 2)
        fail_msg("no step from the second on in:\n%s", text);
    return step;
}

static void assert_json(void)
{
    static const char *const none[] = {"nan", "inf"};
    for (size_t i = 0; i < 2; i++)
        if (strstr(output, none[i]))
            fail_msg("%s in %s", none[i], output);
    assert_non_null(strstr(output, "\"gradient_norm\":null,"));
}

/* The saved weights are equal to the weights of a run that ends a step earlier; the old file is unchanged. */
TEST(test_last_good_weights)
{
    compile("1f1b", "--ranks 4 --microbatches 4");
    expect(finish(start("echo good >%s/w; cp %s/w %s/t; exec %s --json --save %s/w --trace %s/t %s %s %s", folder,
                        folder, folder, dprun, folder, folder, wild, small, program)),
           3, "; the weights are as before this step; wrote ");
    assert_json();
    assert_non_null(strstr(diagnostics, " on rank "));
    assert_non_null(strstr(diagnostics, "/w.diverged; wrote "));
    assert_non_null(strstr(diagnostics, "/t.diverged\n"));
    const unsigned step = step_of(diagnostics);
    expect(finish(start("cd %s; grep -q good w && grep -q good t && grep -q traceEvents t.diverged", folder)), 0, "");
    expect(finish(start("%s --save %s/before %s --steps %u %s %s", dprun, folder, wild, step - 1, small, program)), 0,
           "");
    expect(finish(start("cmp %s/before %s/w.diverged", folder, folder)), 0, "");
}

TEST(test_processes)
{
    need_mpirun();
    compile("1f1b", "--ranks 4 --microbatches 4");
    expect(finish(start("rm -f %s/w*; %s --save %s/w %s %s %s", folder, dprun, folder, wild, small, program)), 3,
           "/w.diverged");
    expect(
        finish(start("%s -n 4 %s --json --save %s/m %s %s %s", mpirun_command(), dprun, folder, wild, small, program)),
        3, "/m.diverged\n");
    assert_json();
    step_of(diagnostics);
    assert_null(strstr(strstr(diagnostics, "dprun: step ") + 1, "dprun: step ")); /* once */
    expect(finish(start("cmp %s/w.diverged %s/m.diverged && ! test -e %s/m", folder, folder, folder)), 0, "");
}

/* An asynchronous program checks the norm at each update: the diverging update is left out, and the ones before it are
   kept. */
TEST(test_asynchronous)
{
    compile("pipedream", "--ranks 4 --microbatches 8");
    expect(finish(start("%s --json --save %s/a %s %s %s", dprun, folder, wild, small, program)), 3,
           "; the weights are as before that update");
    assert_non_null(strstr(diagnostics, "/a.diverged\n"));
    assert_null(strstr(diagnostics, "weights of stage"));
    assert_json();
    expect(finish(start("%s --load %s/a.diverged --forward-only %s %s", dprun, folder, small, program)), 0, "");
}

/* Weights are not written to standard output, which cannot have another name: a reader would take them for good
   ones. */
TEST(test_standard_output)
{
    compile("1f1b", "--ranks 4 --microbatches 4");
    expect(finish(start("%s --save - %s %s %s", dprun, wild, small, program)), 3, " is not finite");
    assert_string_equal(output, "");
}

static int set_up(void **state)
{
    (void)state;
    return make_folder("dprun") ? 0 : -1;
}

int main(void) { return test_program("diverged", set_up, remove_folder); }
