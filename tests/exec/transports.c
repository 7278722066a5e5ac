/* The same program gives the same numbers, bit for bit: run twice, and with one rank a process under mpirun. Every schedule,
   both models, several sizes; losses of every microbatch, gradient norms and the weights after two steps. */

#include "tests/transport/plugin.h"

#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
/* Under a sanitizer every process takes seconds to start: the small size finds what there is to find. */
enum { MOST_RANKS = SANITIZED ? 2 : 8, MOST_TIMES = SANITIZED ? 2 : 3 };

static char folder[] = "/tmp/transports.XXXXXX";
static const char *build;

static void shell(const char *command)
{
    const int status = system(command);
    if (status != 0)
        fail_msg("wait status %#x of: %s", (unsigned)status, command);
}

/* One run of two steps: what it says that is not a time goes to NAME.json, the weights to NAME.weights. */
static void run(const char *launcher, const char *model, const char *name)
{
    char command[4096];
    snprintf(command, sizeof command,
             "%s %s/dprun --model %s --set hidden=16 --set heads=2 --set sequence=8 --set microbatch_size=2 --steps 2 --json "
             "--save %s/%s.weights %s/prog.bin >%s/out 2>%s/err || { status=$?; cat %s/err >&2; exit $status; }; "
             "sed 's/\"tokens_per_s\".*//' %s/out >%s/%s.json",
             launcher, build, model, folder, name, folder, folder, folder, folder, folder, folder, name);
    shell(command);
}

static void compare(const char *one, const char *other, const char *what)
{
    static const char *const kinds[] = {"json", "weights"};
    for (int i = 0; i < 2; i++) {
        char command[4096];
        snprintf(command, sizeof command, "test -s %1$s/%2$s.%4$s && cmp %1$s/%2$s.%4$s %1$s/%3$s.%4$s", folder, one, other, kinds[i]);
        if (system(command) != 0)
            fail_msg("%s: the %s of %s and %s differ", what, kinds[i], one, other);
    }
}

static void same_numbers(void **state)
{
    static const char *const models[] = {"gpt", "mlp"};
    const char *schedule = *state;
    const bool mpi = mpirun_is_there();
    for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2)
        for (int times = 2; times <= MOST_TIMES; times++) {
            char command[4096], launcher[512];
            snprintf(command, sizeof command, "%s/dpc --ranks %d --microbatches %d %s -o %s/prog.bin", build, ranks, times * ranks, schedule,
                     folder);
            shell(command);
            snprintf(launcher, sizeof launcher, "mpirun %s -n %d", mpirun_options(), ranks);
            for (int m = 0; m < 2; m++) {
                run("", models[m], "local");
                run("", models[m], "again");
                compare("local", "again", schedule);
                if (mpi) {
                    run(launcher, models[m], "mpi");
                    compare("local", "mpi", schedule);
                }
            }
        }
    if (!mpi)
        print_message("no mpirun: only compared with itself\n");
}

int main(void)
{
    glob_t found;
    build = getenv("BUILD") ? getenv("BUILD") : "build";
    setenv("LSAN_OPTIONS", "suppressions=tests/transport/openmpi.supp:fast_unwind_on_malloc=0:print_suppressions=0", 0);
    if (!mkdtemp(folder) || glob("schedules/*.dps", 0, NULL, &found) != 0) {
        fprintf(stderr, "no schedules/*.dps here: run from the top folder\n");
        return 1;
    }
    struct CMUnitTest *tests = calloc(found.gl_pathc, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < found.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){.name = found.gl_pathv[i], .test_func = same_numbers, .initial_state = found.gl_pathv[i]};
    const int failures = _cmocka_run_group_tests("transports", tests, found.gl_pathc, NULL, NULL);
    free(tests);
    globfree(&found);
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failures != 0;
}
