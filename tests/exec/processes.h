#pragma once

/* Runs dprun in processes of its own, alone or under mpirun: starts, watches and ends them, and reads their output. */

#include "base/clock.h"
#include "tests/test.h"
#include "tests/transport/plugin.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* PATIENCE: for how many seconds a test waits for what other processes must do, before it fails */
enum { RANKS = 4, PATIENCE = 300 };

static const char small[] = "--set hidden=16 --set heads=2 --set sequence=8 --set microbatch_size=2";
/* make_folder, or the test program, sets `program` and `dprun` */
static char folder[] = "/tmp/command.XXXXXX", program[64], dprun[PATH_MAX];
/* standard output of the command that finish or await_step has read last; standard error, which only finish reads */
static char output[1 << 16], diagnostics[1 << 16];

static inline void read_text(const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "r");
    size_t length = 0;
    if (stream) {
        length = fread(text, 1, size - 1, stream);
        fclose(stream);
    }
    text[length] = '\0';
}

/* Starts a process that runs the shell command. The command starts with exec if the caller needs the process id of the
   program, not that of the shell. */
static inline pid_t start(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline pid_t start(const char *format, ...)
{
    char command[2 * PATH_MAX], whole[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    /* the files are removed first, so that no test reads old output */
    static const char *const names[] = {"out", "err"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(whole, sizeof whole, "%s/%s", folder, names[i]);
        unlink(whole);
    }
    snprintf(whole, sizeof whole, "exec >%s/out 2>%s/err; %s", folder, folder, command);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* the process ends with the test program, also if a test fails */
        /* restores the default: a shell ignores SIGINT in processes that it starts in the background */
        signal(SIGINT, SIG_DFL);
        execl("/bin/sh", "sh", "-c", whole, (char *)NULL);
        _exit(127);
    }
    return child;
}

static inline int finish(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    read_text("out", output, sizeof output);
    read_text("err", diagnostics, sizeof diagnostics);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void expect(int status, int wanted, const char *words)
{
    if (status != wanted || !strstr(diagnostics, words))
        fail_msg("exit status %d instead of %d, or no \"%s\" in:\n%s", status, wanted, words, diagnostics);
}

static inline void need_mpirun(void)
{
    char plugin[PATH_MAX];
    snprintf(plugin, sizeof plugin, "%.*s-mpi.so", PATH_MAX - 16, dprun);
    if (mpirun_is_there() && access(plugin, R_OK) == 0)
        return;
    print_message("no mpirun or no dprun-mpi.so: skipped\n");
    skip();
}

static inline void await_step(const char *words)
{
    const int64_t end = clock_nanoseconds() + PATIENCE * INT64_C(1000000000);
    do {
        usleep(10000);
        read_text("out", output, sizeof output);
    } while (!strstr(output, words) && clock_nanoseconds() < end);
    assert_non_null(strstr(output, words));
}

/* Collects the losses of all steps as text. */
static inline void take_losses(char *losses, size_t size)
{
    size_t used = 0;
    *losses = '\0';
    for (const char *next = output; (next = strstr(next, "\"losses\":[")); next++)
        used += (size_t)snprintf(losses + used, size - used, "%.*s\n", (int)strcspn(next, "]"), next);
    assert_true(used > 40 && used < size);
}

/* Writes up to `most` child processes of a process to `found`, and returns their number. */
static inline int children(pid_t parent, pid_t *found, int most)
{
    char pattern[64];
    glob_t tasks;
    int count = 0;
    snprintf(pattern, sizeof pattern, "/proc/%d/task/*/children", (int)parent);
    if (glob(pattern, 0, NULL, &tasks) != 0)
        return 0;
    for (size_t i = 0; i < tasks.gl_pathc; i++) {
        FILE *stream = fopen(tasks.gl_pathv[i], "r");
        while (stream && count < most && fscanf(stream, "%d", &found[count]) == 1)
            count++;
        if (stream)
            fclose(stream);
    }
    globfree(&tasks);
    return count;
}

/* The process id of one of the ranks. The child of mpirun is a guard process; the rank is the guard's child. */
static inline pid_t a_rank(pid_t mpirun)
{
    pid_t guards[RANKS + 1], worker[2];
    for (int i = 0; i < PATIENCE * 100 && children(mpirun, guards, RANKS + 1) < RANKS; i++)
        usleep(10000); /* mpirun may not have started all processes yet */
    assert_int_equal(children(mpirun, guards, RANKS + 1), RANKS);
    assert_int_equal(children(guards[1], worker, 2), 1);
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)worker[0]);
    FILE *stream = fopen(path, "r");
    assert_non_null(stream);
    assert_non_null(fgets(name, sizeof name, stream));
    fclose(stream);
    assert_string_equal(name, "dprun\n");
    return worker[0];
}

/* Waits for the process to end, for at most PATIENCE seconds. True: it still runs; a zombie counts as ended. */
static inline bool is_alive(pid_t process)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    for (int i = 0; i < PATIENCE * 100; i++) {
        FILE *stream = fopen(path, "r");
        if (!stream)
            return false;
        if (fscanf(stream, "%*d (%*[^)]) %c", &state) != 1)
            state = 'X';
        fclose(stream);
        if (state == 'Z' || state == 'X')
            return false;
        usleep(10000);
    }
    return true;
}

/* Makes the folder of a test program, sets `program` to a path in it, and `dprun` to the path of the program `built` in
   the build folder. False: there is no such program, or the folder cannot be made. */
static inline bool make_folder(const char *built)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("BUILD") ? getenv("BUILD") : "build", built);
    if (!realpath(path, dprun) || !mkdtemp(folder))
        return false;
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    return true;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return finish(start("rm -rf %s", folder));
}
