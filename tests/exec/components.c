/* A trace has the components inside of passes. A real and a simulated run have the same components. Each component is
   inside of its pass, and on one rank components run one after the other. */
#include "tests/exec/shell.h"
#include "tests/exec/training.h"

enum { LINE_BYTES = 1024, MEMBERS = 4, INSTRUCTIONS = 400, LANE = 5 };
static const double rounding = 0.0021; /* microseconds: the trace rounds starts and durations to ns */

static void run(const char *options, const char *more, const char *name)
{
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    assert_int_equal(shell("%s/dprun --json --steps 2 --replicas 2 %s %s --trace %s/%s %s/prog.bin >/dev/null 2>&1",
                           build, options, more, folder, name, folder),
                     0);
}

/* Writes a list of the components in the trace `name`, without their times: member, step, pass and name. */
static void list_components(const char *name)
{
    assert_int_equal(
        shell("grep '\"cat\":\"component\"' %s/%s | sed 's/\"name\":\"\\([^\"]*\\)\".*\"pid\":\\([0-9]*\\).*"
              "\"step\":\\([0-9]*\\).*\"pass\":\"\\([^\"]*\\)\".*/\\2 \\3 \\4 \\1/' | sort -u >%s/%s.list",
              folder, name, folder, name),
        0);
    assert_int_equal(shell("test -s %s/%s.list", folder, name), 0);
}

static double number(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    assert_non_null(found);
    return strtod(found + strlen(key), NULL);
}

typedef struct Interval {
    double start, end;
} Interval;

static Interval interval_of(const char *line)
{
    const double start = number(line, "\"ts\":");
    return (Interval){start, start + number(line, "\"dur\":")};
}

/* Each component is inside the pass of its instruction, and after the component before it on the same rank. */
static void assert_inside(const char *name)
{
    static Interval passes[MEMBERS][INSTRUCTIONS];
    Interval before[MEMBERS] = {{0}};
    char path[100], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    while (fgets(line, sizeof line, stream)) {
        const bool component = strstr(line, "\"cat\":\"component\"");
        if (!component && !strstr(line, "\"cat\":\"compute\""))
            continue;
        const size_t member = (size_t)number(line, "\"pid\":");
        const size_t instruction = (size_t)number(line, "\"instruction\":");
        const Interval interval = interval_of(line);
        assert_true(member < MEMBERS && instruction < INSTRUCTIONS);
        if (!component) {
            passes[member][instruction] = interval; /* a step's passes come before its components */
            continue;
        }
        const Interval *pass = &passes[member][instruction];
        assert_int_equal(number(line, "\"tid\":"), LANE);
        if (interval.start < pass->start - rounding || interval.end > pass->end + rounding)
            fail_msg("outside of %.3f to %.3f: %s", pass->start, pass->end, line);
        if (interval.start < before[member].end - rounding)
            fail_msg("before the end of another one, %.3f: %s", before[member].end, line);
        before[member] = interval;
    }
    fclose(stream);
}

TEST(components_are_those_of_the_simulator)
{
    static const struct {
        const char *name, *options;
    } schedules[] = {{"1f1b", "--held-out 1024"},
                     {"zb-h1", "--held-out 1024"},
                     {"dualpipe", "--held-out 1024"},
                     {"dualpipe", "--held-out 1024 --in-turn"},
                     {"dualpipev", "--held-out 1024"},
                     {"prefill", ""},
                     {"decode", ""}};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        char program[200], arguments[100];
        snprintf(arguments, sizeof arguments, "--ranks 2 --microbatches 4 schedules/%s.dps", schedules[i].name);
        compile_program(arguments, program);
        run("--model moe --set dense_layers=0 --set layers=8 --set hidden=16 --set heads=2 --set sequence=8 "
            "--expert-parallel 2",
            schedules[i].options, "real");
        run("--device sim --cost attention.F=3,attention.B=2,attention.W=1,dispatch.F=1,dispatch.B=1,mlp.F=2,mlp.B=2,"
            "mlp.W=1,combine.F=1,combine.B=1,qkv.F=1,shared.F=1,embedding.F=1,embedding.W=1,head.F=1,head.B=2,head.W=1,"
            "model_layers=8,unit=1e-5",
            strstr(schedules[i].options, "--in-turn") ? "--in-turn" : "", "simulated");
        list_components("real");
        list_components("simulated");
        if (shell("cd %s && diff real.list simulated.list", folder) != 0)
            fail_msg("%s %s", schedules[i].name, schedules[i].options);
        assert_inside("real");
        assert_inside("simulated");
    }
}

/* If passes have costs of their own, their time is not divided among components, and the trace has no components. */
TEST(a_pass_with_a_time_of_its_own_has_no_components)
{
    char program[200];
    compile_program("--ranks 2 --microbatches 4 schedules/1f1b.dps", program);
    run("--device sim --cost F=1,B=2,mlp.F=3,unit=1e-5", "", "simulated");
    assert_int_equal(shell("grep -q component %s/simulated", folder) == 0, 0);
}

int main(void) { return test_program("components", make_folder, remove_folder); }
