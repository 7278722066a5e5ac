/* The halves of an F&B: each has its own time in the trace, and an error names the half that failed. */
#include "tests/exec/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char folder[] = "/tmp/halves.XXXXXX";

static int make_folder(void **state)
{
    char command[500];
    const char *build = getenv("BUILD");
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(command, sizeof command, "%s/dpc --ranks 2 --microbatches 6 schedules/dualpipe.dps -o %s/prog.bin",
             build ? build : "build", folder);
    return system(command);
}

static int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Runs one step with `passes`; NULL: the passes of the model. */
static Status run(const Passes *passes, const char *trace, Error *error)
{
    char program[100];
    char *arguments[] = {"dprun",       "--set",       "hidden=16",  "--set",   "heads=2", "--set",
                         "layers=2",    "--set",       "sequence=8", "--steps", "1",       "--trace",
                         (char *)trace, "--transport", "local",      program,   NULL};
    Run run;
    Session *session = NULL;
    snprintf(program, sizeof program, "%s/prog.bin", folder);
    run_load(&run, arguments);
    const SessionHooks hooks = {.passes = passes};
    Status status = session_open(&run.loaded, &run.line.run, &hooks, &session, error);
    if (status == STATUS_OK) {
        status = session_run(session, error);
        assert_true(session_close(session));
    }
    arena_free(&run.arena);
    return status;
}

/* Reads the time of every F&B of the trace, and of its halves, in microseconds. Returns the number of F&Bs. */
static int read_halves(const char *path, double whole[64], double forward[64], double backward[64])
{
    char line[1024];
    int count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const char *halves = strstr(line, "\"halves\":["), *duration = strstr(line, "\"dur\":");
        if (!halves) {
            assert_null(strchr(line, '&'));
            continue;
        }
        assert_non_null(duration);
        assert_in_range(count, 0, 63);
        whole[count] = strtod(duration + 6, NULL);
        assert_int_equal(sscanf(halves, "\"halves\":[%lf,%lf]", &forward[count], &backward[count]), 2);
        count++;
    }
    fclose(file);
    return count;
}

static void check_trace(const Passes *passes, double least_forward, double least_backward)
{
    char path[100];
    Error error = {""};
    double whole[64], forward[64], backward[64];
    snprintf(path, sizeof path, "%s/trace.json", folder);
    if (run(passes, path, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    const int count = read_halves(path, whole, forward, backward);
    assert_in_range(count, 4, 64);
    for (int i = 0; i < count; i++) {
        assert_true(forward[i] >= least_forward && backward[i] >= least_backward);
        assert_true(fabs(forward[i] + backward[i] - whole[i]) < 0.01);
    }
}

enum { SHORT = 1000, LONG = 5000 }; /* microseconds */

static void sleep_at_least(long microseconds)
{
    struct timespec left = {.tv_nsec = microseconds * 1000};
    while (nanosleep(&left, &left) != 0)
        ;
}

static Status short_pass(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage, (void)error;
    sleep_at_least(SHORT);
    if (buffers->loss)
        *buffers->loss = 1;
    return STATUS_OK;
}

static Status long_pass(Stage *stage, const PassBuffers *buffers, Error *error)
{
    (void)stage, (void)buffers, (void)error;
    sleep_at_least(LONG);
    return STATUS_OK;
}

/* counts down with each pass of the kind under test; the pass that takes it from 1 to 0 fails */
static _Atomic int passes_to_come;

static Status failing_pass(Stage *stage, const PassBuffers *buffers, Error *error)
{
    return atomic_fetch_sub(&passes_to_come, 1) == 1 ? error_set(error, STATUS_RUN_FAILED, "the device is on fire")
                                                     : short_pass(stage, buffers, error);
}

/* In the trace, each half takes at least as long as it sleeps, and both together take as long as the F&B. */
TEST(halves_in_turn_have_intervals)
{
    check_trace(&(Passes){.forward = short_pass, .backward_input = long_pass, .backward_weight = long_pass}, SHORT,
                2 * LONG);
    check_trace(&(Passes){.forward = long_pass, .backward_input = short_pass, .backward_weight = short_pass}, LONG,
                2 * SHORT);
}

TEST(merged_halves_have_the_times_of_their_operations) { check_trace(NULL, 0.001, 0.001); }

/* Runs again and again, and in run n the n-th pass of the kind under test fails, until this pass is in an F&B. Then the
   error must contain `words`. */
static void expect_words(const Passes *passes, const char *words)
{
    bool in_pair = false;
    for (int pass = 1; pass <= 12 && !in_pair; pass++) {
        Error error = {""};
        atomic_store(&passes_to_come, pass);
        assert_int_equal(run(passes, "/dev/null", &error), STATUS_RUN_FAILED);
        in_pair = strstr(error.text, " & ") != NULL;
        if (!strstr(error.text, in_pair ? words : "): the device is on fire"))
            fail_msg("\"%s\" is not in \"%s\"", words, error.text);
    }
    assert_true(in_pair);
}

TEST(a_failure_names_the_half)
{
    expect_words(&(Passes){.forward = failing_pass, .backward_input = short_pass, .backward_weight = short_pass},
                 "dualpipe.dps:33): in its F: the device is on fire");
    expect_words(&(Passes){.forward = short_pass, .backward_input = failing_pass, .backward_weight = short_pass},
                 "dualpipe.dps:33): in its B: the device is on fire");
}

int main(void) { return test_program("halves", make_folder, remove_folder); }
