/* dprun --check: a program is compared with its reference. A proven program never differs from it, so these tests make
   passes compute wrong numbers. */

#include "runtime/command/check.h"
#include "runtime/command/options.h"
#include "tests/exec/pipelines.h"
#include "tests/exec/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICROBATCHES = 3 };

/* counts down with each pass of the kind under test; the pass that takes it from 1 to 0 computes a wrong number */
static atomic_int passes_to_come;

static Status right_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    return stage_forward(stage, buffers, error);
}
static Status right_backward_input(Stage *stage, const PassBuffers *b, Error *error)
{
    return stage_backward_input(stage, b, error);
}
static Status right_backward_weight(Stage *stage, const PassBuffers *b, Error *error)
{
    return stage_backward_weight(stage, b, error);
}

/* Runs an F. Of the passes that compute a loss, passes_to_come selects one; the last bit of its loss becomes wrong. */
static Status wrong_forward(Stage *stage, const PassBuffers *buffers, Error *error)
{
    TRY(stage_forward(stage, buffers, error));
    if (buffers->loss && atomic_fetch_sub(&passes_to_come, 1) == 1)
        ((unsigned char *)buffers->loss)[0] ^= 1;
    return STATUS_OK;
}

/* Runs a W. The one that passes_to_come selects adds its weight gradient twice. */
static Status wrong_backward_weight(Stage *stage, const PassBuffers *buffers, Error *error)
{
    TRY(stage_backward_weight(stage, buffers, error));
    return atomic_fetch_sub(&passes_to_come, 1) == 1 ? stage_backward_weight(stage, buffers, error) : STATUS_OK;
}

static void run(const LoadedProgram *loaded, const RunOptions *options, const Passes *passes, Observer observer,
                atomic_bool *stop)
{
    Error error = {""};
    Session *session = NULL;
    const SessionHooks hooks = {.observer = observer, .passes = passes, .stop = stop};
    Status status = session_open(loaded, options, &hooks, &session, &error);
    if (status == STATUS_OK) {
        status = session_run(session, &error);
        assert_true(session_close(session));
    }
    if (status != STATUS_OK)
        fail_msg("%s", error.text);
}

static void load(Arena *arena, bool reference, LoadedProgram *loaded)
{
    Error error = {""};
    if (program_derive(pipeline_program(arena, 2, 2, MICROBATCHES), &(LoadOptions){.reference = reference}, arena,
                       loaded, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

/* Runs a program of two pipes on 2 ranks for 4 steps, once with `passes` and once as its reference. Returns the result
   of check_tell; its output is in `text` and `error`. */
static Status check_passes(const Passes *passes, bool json, char text[static 512], Error *error)
{
    Arena arena = {0};
    CommandLine line;
    LoadedProgram loaded, reference;
    Check check;
    atomic_bool stop = false;
    char *arguments[] = {"dprun",     "--set",   "hidden=16",  "--set",
                         "heads=2",   "--set",   "sequence=8", "--transport=local",
                         "--steps=4", "--check", "prog.bin",   NULL};
    assert_int_equal(options_parse(11, arguments, &arena, &line, error), STATUS_OK);
    load(&arena, false, &loaded);
    load(&arena, true, &reference);
    check_open(&check, &loaded, line.run.steps, &stop, &arena);
    run(&loaded, &line.run, passes, check_record(&check, (Observer){0}), &stop);
    run(&reference, &line.run, NULL, check_compare(&check), &stop);
    FILE *stream = tmpfile();
    assert_non_null(stream);
    const Status status = check_tell(&check, json, stream, error);
    rewind(stream);
    text[fread(text, 1, 511, stream)] = '\0';
    fclose(stream);
    arena_free(&arena);
    return status;
}

TEST(a_right_program_is_equal)
{
    char text[512];
    Error error = {""};
    const Passes passes = {
        .forward = right_forward, .backward_input = right_backward_input, .backward_weight = right_backward_weight};
    assert_int_equal(check_passes(&passes, false, text, &error), STATUS_OK);
    assert_string_equal(
        text, "check      equal to the bit in 4 steps: every loss and norm is that of the whole model on one rank\n");
    assert_int_equal(check_passes(&passes, true, text, &error), STATUS_OK);
    assert_string_equal(text, "{\"equal\":true,\"steps\":4}\n");
}

/* Each of the two pipes has MICROBATCHES losses a step, so the first loss that is computed in step 2 becomes wrong. The
   last stages of the pipes are on different ranks, so this loss may be of either pipe. */
TEST(a_wrong_loss_is_named)
{
    char text[512];
    Error error = {""};
    const Passes passes = {
        .forward = wrong_forward, .backward_input = right_backward_input, .backward_weight = right_backward_weight};
    atomic_store(&passes_to_come, 2 * MICROBATCHES + 1);
    assert_int_equal(check_passes(&passes, false, text, &error), STATUS_BAD_INPUT);
    assert_string_equal(text, "");
    unsigned microbatch;
    double value, reference;
    if (sscanf(error.text, "step 2, microbatch %u: loss is %lf, but %lf in the whole model on one rank; they must be",
               &microbatch, &value, &reference) != 3)
        fail_msg("%s", error.text);
    assert_true(microbatch < 2 * MICROBATCHES && value != reference && value / reference > 0.999999 &&
                value / reference < 1.000001);
    atomic_store(&passes_to_come, 2 * MICROBATCHES + 1);
    assert_int_equal(check_passes(&passes, true, text, &error), STATUS_BAD_INPUT);
    assert_non_null(
        strstr(text, "{\"equal\":false,\"steps\":1,\"difference\":{\"step\":2,\"number\":\"loss\",\"microbatch\":"));
    assert_non_null(strstr(text, ",\"reference\":"));
}

TEST(a_wrong_gradient_is_named)
{
    char text[512];
    Error error = {""};
    const Passes passes = {
        .forward = right_forward, .backward_input = right_backward_input, .backward_weight = wrong_backward_weight};
    atomic_store(&passes_to_come, 1);
    assert_int_equal(check_passes(&passes, false, text, &error), STATUS_BAD_INPUT);
    assert_non_null(strstr(error.text, "step 1: gradient_norm "));
}

/* A number that is NaN in one run only is a difference, and JSON has null for it. A held-out loss may be missing. */
TEST(numbers_that_are_not_finite)
{
    static const struct {
        double first[3], second[3]; /* loss, norm, held-out loss */
        const char *text;
    } cases[] = {
        {{NAN, 1, NAN}, {NAN, 1, 2}, "{\"equal\":true,\"steps\":1}\n"},
        {{NAN, 1, 2},
         {1, 1, 2},
         "{\"equal\":false,\"steps\":0,\"difference\":{\"step\":1,\"number\":\"loss\",\"microbatch\":0,"
         "\"value\":null,\"reference\":1}}\n"},
        {{1, 2, 3},
         {1, INFINITY, 3},
         "{\"equal\":false,\"steps\":0,\"difference\":{\"step\":1,\"number\":\"gradient_norm\",\"value\":2,"
         "\"reference\":null}}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512] = "";
        double first[3], loss = cases[i].second[0];
        atomic_bool stop = false;
        Error error = {""};
        Check check = {.microbatches = 1, .numbers = first, .stop = &stop, .steps = 1};
        const StepReport report = {.step = 1,
                                   .losses = &loss,
                                   .gradient_norm = cases[i].second[1],
                                   .has_held_out = true,
                                   .held_out_loss = cases[i].second[2]};
        FILE *stream = fmemopen(text, sizeof text, "w");
        assert_non_null(stream);
        memcpy(first, cases[i].first, sizeof first);
        const Observer observer = check_compare(&check);
        observer.step(observer.context, &report);
        assert_int_equal(check_tell(&check, true, stream, &error), check.differs ? STATUS_BAD_INPUT : STATUS_OK);
        fclose(stream);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void) { return test_program("check", NULL, NULL); }
