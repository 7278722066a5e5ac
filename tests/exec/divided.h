#pragma once

/* Runs dprun with a small model whose experts are divided among replicas, alone or under mpirun, and reads its
   output. */

#include "tests/exec/training.h"
#include "tests/transport/plugin.h"

#include <sys/wait.h>

enum { MICROBATCHES = 4 };

static const char settings[] = "model = moe\ndense_layers = 1\nexperts = 8\nexperts_per_token = 2\nexpert_groups = 4\n"
                               "groups_per_token = 2\nexpert_hidden = 8\nbias_rate = 0.01\nbalance_loss = 0.01\n";
static char model[sizeof folder + 20];

static inline int make_model(void **state)
{
    if (make_folder(state))
        return 1;
    snprintf(model, sizeof model, "%s/divided.model", folder);
    FILE *file = fopen(model, "w");
    return !file || fputs(settings, file) < 0 || fclose(file) != 0;
}

static inline void compile_schedule(const char *schedule, int ranks, char program[static 200])
{
    char arguments[300];
    snprintf(arguments, sizeof arguments, "--ranks %d --microbatches %d schedules/%s.dps", ranks, MICROBATCHES,
             schedule);
    compile_program(arguments, program);
}

/* Runs dprun with these arguments. `before` is the start of the command line, for example mpirun. Returns the exit
   status; -1: a signal ended it. Its output and diagnostics go to folder/output. */
static inline int run_dprun(const char *before, const char *arguments)
{
    char command[4096];
    const char *build = getenv("BUILD");
    snprintf(command, sizeof command,
             "timeout -k 5 300 %s %s/dprun --model %s --set hidden=16 --set sequence=8 --set "
             "layers=8 --set heads=2 %s %s %s/prog.bin >%s/output 2>&1",
             before, build ? build : "build", model, strstr(arguments, "--forward-only") ? "" : "--held-out 1024",
             arguments, folder, folder);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline const char *read_output(void)
{
    static char output[1 << 14];
    char path[100];
    snprintf(path, sizeof path, "%s/output", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    output[fread(output, 1, sizeof output - 1, file)] = '\0';
    fclose(file);
    return output;
}

static inline void assert_prints(const char *text)
{
    const char *output = read_output();
    if (!strstr(output, text))
        fail_msg("no \"%s\" in:\n%s", text, output);
}

static inline void assert_lacks(const char *text)
{
    const char *output = read_output();
    if (strstr(output, text))
        fail_msg("\"%s\" in:\n%s", text, output);
}

static inline double printed_number(const char *key)
{
    const char *found = strstr(read_output(), key);
    assert_non_null(found);
    return strtod(found + strlen(key), NULL);
}

/* Returns the share of the time of all-to-alls that is hidden, from 0 to 1: the ranks compute meanwhile. Checks that
   there are all-to-alls. */
static inline double assert_hidden_share(void)
{
    const double hidden = printed_number("\"all_to_all_hidden\":");
    assert_true(printed_number("\"all_to_all_ms\":") > 0);
    assert_true(hidden >= 0 && hidden <= 1);
    return hidden;
}

static inline void assert_runs(const char *before, const char *arguments)
{
    if (run_dprun(before, arguments) != 0) {
        assert_prints("this run should succeed");
        fail();
    }
}

static inline void assert_same_files(const char *one, const char *other)
{
    char command[300];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s", folder, one, folder, other);
    assert_int_equal(system(command), 0);
}

static inline void assert_refused(const char *arguments, int status, const char *text)
{
    assert_int_equal(run_dprun("", arguments), status);
    assert_prints(text);
}
