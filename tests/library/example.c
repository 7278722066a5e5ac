/* Compiles the programs of man/dps.3 that train. Runs the one with threads with every synchronous schedule, and the one
   with MPI with four schedules. Their losses equal those of the chain without a pipeline. */

#include "tests/library/chain.h"
#include "tests/transport/plugin.h"

#include <glob.h>

enum { STEPS = 3, RANKS = 4, MICROBATCHES = 8 };

static char folder[] = "/tmp/dps-example-XXXXXX";

static bool succeeds(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool succeeds(const char *format, ...)
{
    char command[4 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

/* Extracts the three files from the page. Each begins with a comment that has its name, and ends before .Ed. */
static int extract(void **state)
{
    static const char *const files[] = {"chain.h", "threads.c", "mpi.c"};
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_true(succeeds("sed -n '/^.. %s: /,/^.Ed/p' man/dps.3 | sed '$d; s/\\\\e/\\\\/g' >%s/%s && test -s %s/%s",
                             files[i], folder, files[i], folder, files[i]));
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return succeeds("rm -r %s", folder) ? 0 : -1;
}

static bool build(const char *compiler, const char *name)
{
    char top[PATH_MAX];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build", *sanitize = getenv("SANITIZE");
    assert_non_null(getcwd(top, sizeof top));
    return succeeds("%s -std=c11 -Wall -Wextra -Werror %s%s -Ilibrary %s/%s.c -o %s/%s -L%s -ldps -lm -pthread "
                    "-Wl,-rpath,%s/%s",
                    compiler, sanitize && *sanitize ? "-fsanitize=" : "", sanitize ? sanitize : "", folder, name,
                    folder, name, build, top, build);
}

/* Runs a program with one schedule, and compares its losses to those of the chain without a pipeline (chain_step). Does
   nothing if the schedule is asynchronous. */
static void compare(const char *launcher, const char *name, const char *path)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, path, RANKS, MICROBATCHES);
    dps_program_info info = {.size = sizeof info};
    dps_get_program_info(program, &info);
    if (!info.is_asynchronous) {
        char command[2 * PATH_MAX];
        Vector weights[STAGES_MAX];
        snprintf(command, sizeof command, "%s %s/%s %s %d %d", launcher, folder, name, path, RANKS, MICROBATCHES);
        FILE *losses = popen(command, "r");
        for (uint32_t s = 0; s < info.stages; s++)
            weights[s] = initial_weights(s);
        for (int i = 0; i < STEPS; i++) {
            double loss;
            if (fscanf(losses, "%lf", &loss) != 1)
                fail_msg("%s prints no losses", command);
            assert_equal_numbers(loss, chain_step(weights, &info));
        }
        assert_int_equal(pclose(losses), 0);
    }
    dps_program_free(program);
    dps_free(d);
}

TEST(threads_train_with_every_schedule)
{
    glob_t files;
    assert_true(build(getenv("CC") ? getenv("CC") : "gcc", "threads"));
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        compare("", "threads", files.gl_pathv[i]);
    globfree(&files);
}

static void refuses(const char *arguments, const char *words)
{
    char command[2 * PATH_MAX], text[PATH_MAX] = "";
    snprintf(command, sizeof command, "%s/threads %s 2>&1", folder, arguments);
    FILE *said = popen(command, "r");
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    assert_int_equal(WEXITSTATUS(pclose(said)), 1);
    assert_string_equal(text, words);
}

TEST(threads_say_what_is_wrong)
{
    assert_true(build(getenv("CC") ? getenv("CC") : "gcc", "threads"));
    refuses("schedules/1f1b.dps", "arguments: SCHEDULE.dps RANKS MICROBATCHES\n");
    refuses("none.dps 4 8", "none.dps: No such file or directory\n");
    refuses("schedules/1f1b.dps 9 9", "RANKS is too small\n");
    refuses("schedules/gpipe.dps 2 300", "CHUNKS or SLOTS is too small\n");
}

TEST(processes_train_with_messages_of_their_own)
{
    static const char *const names[] = {"1f1b", "zb-h1", "interleaved-1f1b", "dualpipe"};
    const char *sanitize = getenv("SANITIZE");
    char launcher[320];
    if (!mpirun_is_there() || !succeeds("command -v mpicc >/dev/null") || (sanitize && *sanitize)) {
        print_message("no mpicc and mpirun, or a sanitizer, which MPI does not know: skipped\n");
        skip();
    }
    snprintf(launcher, sizeof launcher, "%s -n %d", mpirun_command(), RANKS);
    assert_true(build("mpicc", "mpi"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[80];
        snprintf(path, sizeof path, "schedules/%s.dps", names[i]);
        compare(launcher, "mpi", path);
    }
}

int main(void) { return test_program("example", extract, clean); }
